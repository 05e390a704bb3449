// The GPU version of MinAtar/Breakout: exactly the results of breakout.py.
#include "envs_fast/grids.cuh"
#include "envs_fast/minatar/breakout.py"
#include "envs_fast/minatar/game.cuh"

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  int carried = carried_out(state, action, draw_now(moment).a, parameters, tables);
  int paddle = state[POSITION], x = state[BALL_X], y = state[BALL_Y], direction = state[DIRECTION];
  if (carried == LEFT) paddle = paddle > 0 ? paddle - 1 : 0;
  if (carried == RIGHT) paddle = paddle < EDGE ? paddle + 1 : EDGE;
  int new_x = x + (direction == 1 || direction == 2 ? 1 : -1), new_y = y + (direction >= 2 ? 1 : -1);
  bool over = false;
  int in_wall = 0, wall = state[WALL];
  reward = 0.0;
  if (new_x < 0 || new_x > EDGE) {
    new_x = clip(new_x, 0, EDGE);
    direction ^= 1;
  }
  int bit = TOP <= new_y && new_y <= BOTTOM ? 1 << (SIDE * (new_y - TOP) + new_x) : 0;
  if (new_y < 0) {
    new_y = 0;
    direction = 3 - direction;
  } else if (wall & bit) {
    in_wall = 1;
    if (state[IN_WALL] == 0) {
      reward = 1.0;
      wall &= ~bit;
      new_y = y;
      direction = 3 - direction;
    }
  } else if (new_y == EDGE) {
    wall = wall ? wall : WHOLE;
    if (x == paddle) {
      new_y = y;
      direction = 3 - direction;
    } else if (new_x == paddle) {
      new_y = y;
      direction ^= 2;
    } else {
      over = true;
    }
  }
  state[POSITION] = paddle;
  state[DIRECTION] = direction;
  state[IN_WALL] = in_wall;
  state[WALL] = wall;
  state[BALL_X] = new_x;
  state[BALL_Y] = new_y;
  state[LAST_X] = x;
  state[LAST_Y] = y;
  return over;
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  bool left = draw(0, episode).a < 1u << 31;
  state[BEFORE] = NOTHING;
  state[POSITION] = 4;
  state[IN_WALL] = 0;
  state[WALL] = WHOLE;
  state[BALL_X] = state[LAST_X] = left ? 0 : EDGE;
  state[BALL_Y] = state[LAST_Y] = 3;
  state[DIRECTION] = left ? 2 : 3;
}

DEVICE void observe(State state, Seen& seen, const Parameters& parameters) {
  clear(seen);
  light(seen, PADDLE, EDGE, state[POSITION]);
  light(seen, BALL, state[BALL_Y], state[BALL_X]);
  light(seen, TRAIL, state[LAST_Y], state[LAST_X]);
  for (int y = TOP; y <= BOTTOM; y++) light_row(seen, BRICK, y, state[WALL] >> SIDE * (y - TOP));
}

GRID_KERNELS(breakout)
