// The GPU version of MiniGrid-KeyCorridor: exactly the results of key_corridor.py.
#include "envs_fast/minigrid/tasks.cuh"
#include "envs_fast/minigrid/key_corridor.py"

// The number of the wall at a side of room (i, j): 0 right, 1 below, 2 left, 3 above; negative at the grid's edge.
DEVICE int wall_of(int i, int j, int side) {
  if (side == 0) return i < RIGHTMOST ? 2 * (COLUMNS * j + i) + TO_THE_RIGHT : -1;
  if (side == 1) return 2 * (COLUMNS * j + i) + DOWN;
  if (side == 2) return i > LEFTMOST ? 2 * (COLUMNS * j + i - 1) + TO_THE_RIGHT : -1;
  return 2 * (COLUMNS * (j - 1) + i) + DOWN;
}

// The room at the right of a wall, or below it; room wall / 2 is at its other side.
DEVICE int behind(int wall) { return wall / 2 + (wall % 2 == TO_THE_RIGHT ? 1 : COLUMNS); }

// The rooms that can be reached from one through the walls with a door (bits of `linked`), as bits.
DEVICE int reached(int linked, int walls, int room) {
  int found = 1 << room, before = 0;
  while (found != before) {
    before = found;
    for (int wall = 0; wall < walls; wall++) {
      int both = 1 << wall / 2 | 1 << behind(wall);
      if (linked >> wall & 1 && found & both) found |= both;
    }
  }
  return found;
}

// Adds closed doors at random until every room can be reached.
DEVICE void connect(State state, const Episode& episode, const Parameters& parameters, int linked, int locked) {
  int rooms = (int)parameters.rooms, rows = rooms / COLUMNS;
  while (reached(linked, 2 * rooms, HALL) != (1 << rooms) - 1) {
    int i = pick(state, episode, 0, COLUMNS), j = pick(state, episode, 0, rows);
    int wall = wall_of(i, j, pick(state, episode, 0, 4));
    if (wall < 0 || behind(wall) >= rooms || linked >> wall & 1) continue;
    if (locked == wall / 2 || locked == behind(wall)) continue;
    linked |= 1 << wall;
    int colour = pick(state, episode, 0, COLOURS);
    state[door_row(episode, parameters, wall)] = painted(DOOR, colour) + STATE * CLOSED;
  }
}

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  bool over = act(state, action, moment, parameters, reward);
  if (action != PICK_UP || (state[CARRIED] & KIND) != BALL) return over;
  reward = success(moment, parameters);
  return true;
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  int rows = (int)parameters.rooms / COLUMNS, pitch = (int)parameters.room - 1, linked = 0;
  build(state, parameters);
  for (int j = 1; j < rows; j++) {
    line(state, parameters, pitch * HALL + 1, pitch * j, pitch - 1, EMPTY);
    linked |= 1 << wall_of(HALL, j - 1, 1);
  }
  int row = pick(state, episode, 0, rows), colour = pick(state, episode, 0, COLOURS), door = wall_of(HALL, row, 0);
  state[door_row(episode, parameters, door)] = painted(DOOR, colour) + STATE * LOCKED;
  stand(state, NOWHERE, NOWHERE, 0);
  int ball = painted(BALL, pick(state, episode, 0, COLOURS));
  place(state, parameters, episode, area(parameters, RIGHTMOST, row), ball);
  Area chosen = area(parameters, LEFTMOST, pick(state, episode, 0, rows));
  place(state, parameters, episode, chosen, painted(KEY, colour));
  place_agent(state, parameters, episode, HALL, rows / 2);
  connect(state, episode, parameters, linked | 1 << door, COLUMNS * row + RIGHTMOST);
}

GRID_KERNELS(key_corridor)
