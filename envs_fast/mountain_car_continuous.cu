// The GPU version of MountainCarContinuous-v0: the same results as mountain_car_continuous.py, bit for bit.
// `single` is one of Gymnasium's roundings to float32.
#include "envs_fast/world.cuh"
#include "envs_fast/mountain_car_continuous.py"

typedef double Number;
typedef float Action;
typedef Row<float, WIDTH> Seen;

struct State {
  double position, velocity;
};

struct Parameters {
  double goal_velocity, largest_charge, time_limit;
};

struct Tables {};

DEVICE bool legal(float& action, const Parameters& parameters, const Tables& tables) { return number(action); }

DEVICE double single(double x) { return (double)(float)x; }

DEVICE bool step(State& state, float action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  double force = (double)clip(action, -1.0f, 1.0f);
  double angle = moment.age == 0 ? 3.0 * state.position : single(3.0 * state.position);
  double pull = single(GRAVITY * simd_math::cos(angle));
  double velocity = single(state.velocity + single(single(force * POWER) - pull));
  velocity = clip(velocity, -MAX_SPEED, MAX_SPEED);
  double position = single(clip(state.position + velocity, MIN_POSITION, MAX_POSITION));
  velocity = position == MIN_POSITION && velocity < 0.0 ? 0.0 : velocity;
  state = {position, velocity};
  bool reached = position >= GOAL && velocity >= parameters.goal_velocity;
  double effort = clip((double)action, -parameters.largest_charge, parameters.largest_charge);
  reward = (reached ? REWARD : 0.0) - effort * effort * COST;
  return reached;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  return {between(draw(0, episode).a, RESET_LOW, RESET_HIGH), 0.0};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  return {(float)state.position, (float)state.velocity};
}

WORLD_KERNELS(mountain_car_continuous)
