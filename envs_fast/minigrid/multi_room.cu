// The GPU version of MiniGrid-MultiRoom: exactly the results of multi_room.py.
#include "envs_fast/minigrid/tasks.cuh"
#include "envs_fast/minigrid/multi_room.py"

DEVICE Area area(State state, int k) {
  int at = ROOMS + NUMBERS * k;
  return {state[at], state[at + 1], state[at + 2], state[at + 3]};
}

// Whether two rooms do not overlap, by the comparisons of the package minigrid.
DEVICE bool apart(const Area& room, const Area& other) {
  return room.x + room.width < other.x || other.x + other.width <= room.x || room.y + room.height < other.y ||
         other.y + other.height <= room.y;
}

// Tries to add room k with a door at (door_x, door_y) in one of its walls; returns whether it fits.
DEVICE bool add(State state, const Episode& episode, const Parameters& parameters, int k, int wall, int door_x,
                int door_y) {
  int width = pick(state, episode, SMALLEST, (int)parameters.room + 1);
  int height = pick(state, episode, SMALLEST, (int)parameters.room + 1);
  int x = door_x, y = door_y;
  if (k > 0) {
    if (wall == EAST) x = door_x - width + 1;
    if (wall == SOUTH) y = door_y - height + 1;
    if (wall == EAST || wall == WEST)
      y = pick(state, episode, door_y - height + 2, door_y);
    else
      x = pick(state, episode, door_x - width + 2, door_x);
  }
  if (x < 0 || y < 0 || x + width > (int)parameters.width || y + height >= (int)parameters.height) return false;
  Area room = {x, y, width, height};
  for (int other = 0; other < k - 1; other++)
    if (!apart(room, area(state, other))) return false;
  int at = ROOMS + NUMBERS * k;
  state[at] = x;
  state[at + 1] = y;
  state[at + 2] = width;
  state[at + 3] = height;
  state[at + ENTRY_X] = door_x;
  state[at + ENTRY_Y] = door_y;
  return true;
}

// Adds rooms, each entered from the one before, until there are enough or TRIES tries fail; returns how many.
DEVICE int chain(State state, const Episode& episode, const Parameters& parameters) {
  int side = (int)parameters.width - 2, door_x = pick(state, episode, 0, side), door_y = pick(state, episode, 0, side);
  int count = add(state, episode, parameters, 0, WEST, door_x, door_y), entry = WEST, tries = 0;
  while (0 < count && count < (int)parameters.rooms && tries < TRIES) {
    Area room = area(state, count - 1);
    int way = pick(state, episode, 0, 3);
    way += way >= entry;
    door_x = room.x + (way == EAST ? room.width - 1 : 0);
    door_y = room.y + (way == SOUTH ? room.height - 1 : 0);
    if (way == EAST || way == WEST)
      door_y = room.y + pick(state, episode, 1, room.height - 1);
    else
      door_x = room.x + pick(state, episode, 1, room.width - 1);
    tries += 1;
    if (!add(state, episode, parameters, count, (way + 2) & 3, door_x, door_y)) continue;
    entry = (way + 2) & 3;
    count += 1;
    tries = 0;
  }
  return count;
}

DEVICE bool step(State state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  return act(state, action, moment, parameters, reward);
}

DEVICE void reset(State state, const Episode& episode, const Parameters& parameters, const Tables& tables) {
  int rooms = (int)parameters.rooms, colour = COLOURS;
  empty(state, parameters, 0);
  while (chain(state, episode, parameters) < rooms) {
  }
  for (int k = 0; k < rooms; k++) {
    wall_in(state, parameters, area(state, k));
    if (k == 0) continue;
    int other = pick(state, episode, 0, k == 1 ? COLOURS : COLOURS - 1), at = ROOMS + NUMBERS * k;
    colour = other + (other >= colour);
    put(state, parameters, state[at + ENTRY_X], state[at + ENTRY_Y], painted(DOOR, colour) + STATE * CLOSED);
  }
  place_agent(state, parameters, episode, area(state, 0));
  place(state, parameters, episode, area(state, rooms - 1), FINISH);
}

GRID_KERNELS(multi_room)
