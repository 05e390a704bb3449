// The GPU version of what MiniGrid's tasks share: exactly the results of rules.py, layout.py and rooms.py, which
// explain the functions. `observe` sets a cell's bytes directly; rules.py collects them first, for vector instructions.
#include "envs_fast/grids.cuh"
#include "envs_fast/minigrid/rules.py"
#include "envs_fast/minigrid/layout.py"
#include "envs_fast/minigrid/rooms.py"

typedef int Number;
typedef Rows<Number> State;
typedef i64 Action;
typedef Row<u8, PLANES * VIEW> Seen;

struct Parameters {
  double width, height, most_steps, room, rooms, anywhere, sees_all, time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, ACTIONS); }

// --- rules.py

DEVICE int step_x(int facing) { return (facing == 0) - (facing == 2); }

DEVICE int step_y(int facing) { return (facing == 1) - (facing == 3); }

DEVICE int row_of(int x, int y, const Parameters& parameters) { return CELLS + (int)parameters.width * y + x; }

DEVICE int row_ahead(State state, const Parameters& parameters) {
  int facing = state[FACING];
  return row_of(state[X] + step_x(facing), state[Y] + step_y(facing), parameters);
}

DEVICE bool is_shut(int cell) {
  int kind = cell & KIND;
  return kind == WALL || (kind == DOOR && cell >= STATE);
}

DEVICE double success(const Moment& moment, const Parameters& parameters) {
  return 1.0 - 0.9 * ((double)(moment.age + 1) / parameters.most_steps);
}

DEVICE int toggled(int cell, int carried) {
  int kind = cell & KIND, paint = cell & COLOUR * HUE, door = cell / STATE;
  if (kind == BOX) return EMPTY;
  if (kind != DOOR) return cell;
  if (door == LOCKED) return carried == KEY + paint ? DOOR + paint : cell;
  return DOOR + paint + (door == OPEN ? STATE * CLOSED : 0);
}

DEVICE bool act(State state, i64 action, const Moment& moment, const Parameters& parameters, double& reward) {
  int row = row_ahead(state, parameters), cell = state[row], kind = cell & KIND, carried = state[CARRIED];
  int facing = state[FACING];
  reward = 0.0;
  if (action == LEFT) {
    state[FACING] = (facing + 3) & 3;
  } else if (action == RIGHT) {
    state[FACING] = (facing + 1) & 3;
  } else if (action == FORWARD) {
    bool ends = kind == GOAL || kind == LAVA;
    if (ends || kind == EMPTY || (kind == DOOR && !is_shut(cell))) {
      state[X] += step_x(facing);
      state[Y] += step_y(facing);
    }
    if (kind == GOAL) reward = success(moment, parameters);
    return ends;
  } else if (action == PICK_UP) {
    if (carried == NOTHING && KEY <= kind && kind <= BOX) {
      state[CARRIED] = cell;
      state[row] = EMPTY;
    }
  } else if (action == DROP) {
    if (carried != NOTHING && cell == EMPTY) {
      state[row] = carried;
      state[CARRIED] = NOTHING;
    }
  } else if (action == TOGGLE) {
    state[row] = toggled(cell, carried);
  }
  return false;
}

DEVICE int cell_at(State state, int x, int y, const Parameters& parameters) {
  bool inside = 0 <= x && 0 <= y && x < (int)parameters.width && y < (int)parameters.height;
  return inside ? state[row_of(x, y, parameters)] : STONE;
}

// Sets all bytes to 0, sixteen at a time where the address allows: an observation may begin at any address.
DEVICE void darken(Seen& seen) {
  u8 *at = seen.at, *end = at + sizeof(Seen);
  while ((u64)at % 16) *at++ = 0;
  for (; at + 16 <= end; at += 16) *(Row<u32, 4>*)at = Row<u32, 4>{};
  while (at < end) *at++ = 0;
}

DEVICE void light(Seen& seen, int plane, int place) { seen.at[VIEW * plane + place] = LIT; }

// Spreads visibility along a row, to the right and then to the left, through cells that are not shut (`clear`). Updates
// `visible` and returns what can be seen in the row behind. Bit i stands for column i.
DEVICE int spread(int& visible, int clear) {
  for (int k = 1; k < SIDE; k++) visible |= (visible & clear) << 1 & ALL;
  int to_right = visible & clear & ALL >> 1, behind = to_right | to_right << 1;
  for (int k = 1; k < SIDE; k++) visible |= (visible & clear) >> 1;
  int to_left = visible & clear & ALL << 1;
  return (behind | to_left | to_left >> 1) & ALL;
}

DEVICE void observe(State state, Seen& seen, const Parameters& parameters) {
  int facing = state[FACING], ahead_x = step_x(facing), ahead_y = step_y(facing), visible = 1 << MIDDLE;
  int left_x = state[X] + ahead_y * MIDDLE, left_y = state[Y] - ahead_x * MIDDLE;  // left end of the agent's row
  darken(seen);
#pragma unroll 1
  for (int distance = 0; distance < SIDE; distance++) {
    u64 cells = 0;  // the seven cells of the row, BITS each
    int clear = 0, first_x = left_x + ahead_x * distance, first_y = left_y + ahead_y * distance;
    if (parameters.sees_all != 0.0) visible = ALL;
    for (int i = 0; i < SIDE && visible; i++) {
      int cell = cell_at(state, first_x - ahead_y * i, first_y + ahead_x * i, parameters);
      clear |= !is_shut(cell) << i;
      cells |= (u64)cell << BITS * i;
    }
    int behind = spread(visible, clear);
    for (int i = 0; i < SIDE; i++) {
      int cell = (int)(cells >> BITS * i) & CELL, place = SIDE * (i + 1) - 1 - distance;
      if (distance == 0 && i == MIDDLE) cell = state[CARRIED] == NOTHING ? EMPTY : state[CARRIED];
      if (!(visible >> i & 1)) cell = UNSEEN;
      light(seen, cell & KIND, place);
      light(seen, KINDS + (cell / COLOUR & HUE), place);
      light(seen, KINDS + COLOURS + cell / STATE, place);
    }
    visible = behind;
  }
  for (int place = 0; place < VIEW; place++) light(seen, KINDS + COLOURS + STATES + facing, place);
}

// --- layout.py

struct Area {
  int x, y, width, height;
};

DEVICE int below(u32 word, int choices) { return (int)(((u64)word * choices) >> 32); }

DEVICE int pick(State state, const Episode& episode, int low, int end) {
  u32 word = draw(state[DRAWN], episode).a;
  state[DRAWN] += 1;
  return low + below(word, end - low);
}

DEVICE void empty(State state, const Parameters& parameters, int drawn) {
  int cells = (int)(parameters.width * parameters.height);
  for (int k = 0; k < cells; k++) state[CELLS + k] = EMPTY;
  state[CARRIED] = NOTHING;
  state[DRAWN] = drawn;
}

DEVICE void put(State state, const Parameters& parameters, int x, int y, int cell) {
  state[row_of(x, y, parameters)] = cell;
}

DEVICE void stack(State state, const Parameters& parameters, int x, int y, int length, int cell) {
  for (int k = 0; k < length; k++) put(state, parameters, x, y + k, cell);
}

DEVICE void line(State state, const Parameters& parameters, int x, int y, int length, int cell) {
  for (int k = 0; k < length; k++) put(state, parameters, x + k, y, cell);
}

DEVICE void wall_in(State state, const Parameters& parameters, const Area& area) {
  line(state, parameters, area.x, area.y, area.width, STONE);
  line(state, parameters, area.x, area.y + area.height - 1, area.width, STONE);
  stack(state, parameters, area.x, area.y, area.height, STONE);
  stack(state, parameters, area.x + area.width - 1, area.y, area.height, STONE);
}

DEVICE void free_place(State state, const Parameters& parameters, const Episode& episode, const Area& area, int& x,
                       int& y) {
  int end_x = area.x + area.width, end_y = area.y + area.height;
  int width = (int)parameters.width, height = (int)parameters.height;
  do {
    x = pick(state, episode, area.x, end_x < width ? end_x : width);
    y = pick(state, episode, area.y, end_y < height ? end_y : height);
  } while (state[row_of(x, y, parameters)] != EMPTY || (x == state[X] && y == state[Y]));
}

DEVICE void place(State state, const Parameters& parameters, const Episode& episode, const Area& area, int cell) {
  int x, y;
  free_place(state, parameters, episode, area, x, y);
  put(state, parameters, x, y, cell);
}

DEVICE void stand(State state, int x, int y, int facing) {
  state[X] = x;
  state[Y] = y;
  state[FACING] = facing;
}

DEVICE void place_agent(State state, const Parameters& parameters, const Episode& episode, const Area& area) {
  int x, y;
  stand(state, NOWHERE, NOWHERE, 0);
  free_place(state, parameters, episode, area, x, y);
  stand(state, x, y, pick(state, episode, 0, 4));
}

DEVICE Area everywhere(const Parameters& parameters) { return {0, 0, (int)parameters.width, (int)parameters.height}; }

DEVICE void begin(State state, const Parameters& parameters) {
  empty(state, parameters, 0);
  wall_in(state, parameters, everywhere(parameters));
}

DEVICE int painted(int kind, int colour) { return kind + COLOUR * colour; }

// --- rooms.py

DEVICE int columns(const Parameters& parameters) { return ((int)parameters.width - 1) / ((int)parameters.room - 1); }

DEVICE Area area(const Parameters& parameters, int i, int j) {
  int room = (int)parameters.room, pitch = room - 1;
  return {pitch * i, pitch * j, room, room};
}

DEVICE void build(State state, const Parameters& parameters) {
  int rooms = (int)parameters.rooms, wide = columns(parameters);
  empty(state, parameters, 2 * rooms);
  for (int room = 0; room < rooms; room++) wall_in(state, parameters, area(parameters, room % wide, room / wide));
}

DEVICE int door_row(const Episode& episode, const Parameters& parameters, int wall) {
  int pitch = (int)parameters.room - 1, room = wall / 2;
  int i = room % columns(parameters), j = room / columns(parameters);
  int along = 1 + below(draw(wall, episode).a, pitch - 1);
  bool right = wall % 2 == TO_THE_RIGHT;
  return right ? row_of(pitch * (i + 1), pitch * j + along, parameters)
               : row_of(pitch * i + along, pitch * (j + 1), parameters);
}

DEVICE void place_agent(State state, const Parameters& parameters, const Episode& episode, int i, int j) {
  int ahead;
  do {
    place_agent(state, parameters, episode, area(parameters, i, j));
    ahead = state[row_ahead(state, parameters)];
  } while (ahead != EMPTY && ahead != STONE);
}
