// The GPU version of CartPole's rules: the same results as cartpole.py, bit for bit. Two worlds include this file,
// cartpole.cu and popgym_cartpole.cu, and add their own observation.
#include "envs_fast/world.cuh"
#include "envs_fast/cartpole.py"

typedef double Number;
typedef i64 Action;

struct State {
  double x, x_dot, theta, theta_dot;
};

// Plays one step of the physics; returns whether the episode is lost (cart or pole out of bounds).
DEVICE bool push(State& state, i64 action) {
  double force = action == 1 ? FORCE : -FORCE, sine, cosine;
  simd_math::sincos_near_zero(state.theta, sine, cosine);
  double temp = fma(POLEMASS_LENGTH * (state.theta_dot * state.theta_dot), sine, force) * (1.0 / TOTAL_MASS);
  double theta_acc = (GRAVITY * sine - cosine * temp) / fma(-SHARE, cosine * cosine, INERTIA);
  double x_acc = fma(-PULL * cosine, theta_acc, temp);
  state.x = state.x + TAU * state.x_dot;
  state.x_dot = state.x_dot + TAU * x_acc;
  state.theta = state.theta + TAU * state.theta_dot;
  state.theta_dot = state.theta_dot + TAU * theta_acc;
  return fabs(state.x) > X_LIMIT || fabs(state.theta) > THETA_LIMIT;
}

struct Parameters {
  double reward, reward_lost, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, 2); }

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  bool lost = push(state, action);
  reward = lost ? parameters.reward_lost : parameters.reward;
  return lost;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  Words w = draw(0, episode);
  return {between(w.a, -RESET, RESET), between(w.b, -RESET, RESET), between(w.c, -RESET, RESET),
          between(w.d, -RESET, RESET)};
}
