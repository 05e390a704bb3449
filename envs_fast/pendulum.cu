// Pendulum-v1 on a GPU: pendulum.py, bit for bit.
#include "envs_fast/world.cuh"
#include "envs_fast/pendulum.py"

typedef double Number;
typedef float Action;
typedef Row<float, WIDTH> Seen;

struct State {
  double theta, speed;
};

struct Parameters {
  double pull, time_limit;
};

struct Tables {};

DEVICE bool legal(float& action, const Parameters& parameters, const Tables& tables) { return number(action); }

// The same angle in [-pi, pi).
DEVICE double angle_normalize(double theta) {
  double shifted = theta + PI;
  double turns = floor(shifted * (1.0 / (2.0 * PI)));
  return ((shifted - turns * TURN_0) - turns * TURN_1) - PI;
}

DEVICE bool step(State& state, float action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  float torque = 2.0f * clip(action, -1.0f, 1.0f);
  double angle = angle_normalize(state.theta);
  double effort = (double)(0.001f * (torque * torque)), lift = (double)(3.0f * torque);
  reward = -((angle * angle + 0.1 * (state.speed * state.speed)) + effort);
  double speed = state.speed + (parameters.pull * simd_math::sin(state.theta) + lift) * DT;
  speed = clip(speed, -MAX_SPEED, MAX_SPEED);
  state = {state.theta + speed * DT, speed};
  return false;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  Words w = draw(0, episode);
  return {between(w.a, -RESET_THETA, RESET_THETA), between(w.b, -RESET_SPEED, RESET_SPEED)};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  double sine, cosine;
  simd_math::sincos(state.theta, sine, cosine);
  return {(float)cosine, (float)sine, (float)state.speed};
}

WORLD_KERNELS(pendulum)
