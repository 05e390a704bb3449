// The GPU version of Pendulum's physics: the same results as pendulum.py, bit for bit. Two worlds include this file,
// pendulum.cu and popgym_pendulum.cu, and add their own reward and observation.
#include "envs_fast/world.cuh"
#include "envs_fast/pendulum.py"

typedef double Number;
typedef float Action;

struct Tables {};

struct State {
  double theta, speed;
};

// Returns the angle wrapped to [-pi, pi).
DEVICE double angle_normalize(double theta) {
  double shifted = theta + PI;
  double turns = floor(shifted * (1.0 / (2.0 * PI)));
  return ((shifted - turns * TURN_0) - turns * TURN_1) - PI;
}

// Plays one step of the physics for an action in [-1, 1]; returns the cost, which is minus Pendulum's reward.
DEVICE double swing(State& state, float action, double pull) {
  float torque = 2.0f * clip(action, -1.0f, 1.0f);
  double angle = angle_normalize(state.theta);
  double effort = (double)(0.001f * (torque * torque)), lift = (double)(3.0f * torque);
  double cost = (angle * angle + 0.1 * (state.speed * state.speed)) + effort;
  double speed = state.speed + (pull * simd_math::sin(state.theta) + lift) * DT;
  speed = clip(speed, -MAX_SPEED, MAX_SPEED);
  state = {state.theta + speed * DT, speed};
  return cost;
}

DEVICE State first_state(const Episode& episode) {
  Words w = draw(0, episode);
  return {between(w.a, -RESET_THETA, RESET_THETA), between(w.b, -RESET_SPEED, RESET_SPEED)};
}
