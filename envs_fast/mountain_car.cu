// The GPU version of MountainCar-v0: the same results as mountain_car.py, bit for bit.
#include "envs_fast/world.cuh"
#include "envs_fast/mountain_car.py"

typedef double Number;
typedef i64 Action;
typedef Row<float, WIDTH> Seen;

struct State {
  double position, velocity;
};

struct Parameters {
  double goal_velocity, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, 3); }

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  double push = (double)(action - 1) * FORCE, slope = simd_math::cos(3.0 * state.position) * -GRAVITY;
  double velocity = clip(state.velocity + (push + slope), -MAX_SPEED, MAX_SPEED);
  double position = clip(state.position + velocity, MIN_POSITION, MAX_POSITION);
  velocity = position == MIN_POSITION && velocity < 0.0 ? 0.0 : velocity;
  state = {position, velocity};
  reward = -1.0;
  return position >= GOAL && velocity >= parameters.goal_velocity;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  return {between(draw(0, episode).a, RESET_LOW, RESET_HIGH), 0.0};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {(float)state.position, (float)state.velocity};
}

WORLD_KERNELS(mountain_car)
