// The GPU version of bsuite/Catch-v0: exactly the results of bsuite_catch.py.
#include "envs_fast/world.cuh"
#include "envs_fast/bsuite_catch.py"

typedef int Number;
typedef i64 Action;
typedef Row<float, WIDTH> Seen;

struct State {
  int ball_x, ball_y, paddle_x;
};

struct Parameters {
  double time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, 3); }

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  state.paddle_x = clip(state.paddle_x + (int)action - 1, 0, BREADTH - 1);
  state.ball_y += 1;
  bool over = state.ball_y == BOTTOM;
  double gain = state.paddle_x == state.ball_x ? 1.0 : -1.0;
  reward = over ? gain : 0.0;
  return over;
}

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  return {(int)between(draw(0, episode).a, 0.0, BREADTH), 0, BREADTH / 2};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  int ball = state.ball_y * BREADTH + state.ball_x, paddle = BOTTOM * BREADTH + state.paddle_x;
  Seen board;
#pragma unroll
  for (int place = 0; place < WIDTH; place++) board.at[place] = place == ball || place == paddle ? 1.0f : 0.0f;
  return board;
}

WORLD_KERNELS(bsuite_catch)
