// The GPU version of Seaquest's lists and moving things: exactly the results of lists.py and swimmers.py, which explain
// the functions. A list begins at `items` in the state with its length; item k is k numbers behind it.
#include "envs_fast/minatar/lists.py"
#include "envs_fast/minatar/swimmers.py"
#include "envs_fast/minatar/game.cuh"

DEVICE void add(State state, int items, int room, int item) {
  if (state[items] >= room) return;
  state[items] += 1;
  state[items + state[items]] = item;
}

DEVICE void remove(State state, int items, int k) {
  for (int row = items + k; row < items + state[items]; row++) state[row] = state[row + 1];
  state[items] -= 1;
}

DEVICE int remove_equal(State state, int items, int item) {
  int k = 1;
  while (state[items + k] != item) k++;
  remove(state, items, k);
  return k;
}

DEVICE bool hit(State state, int items, int place) {
  for (int k = 1; k <= state[items]; k++) {
    if ((state[items + k] & PLACE) != place) continue;
    remove(state, items, k);
    return true;
  }
  return false;
}

DEVICE int moved(int item) {
  int x = (item & COLUMN) + (item & GOING_RIGHT ? 1 : -1);
  return 0 <= x && x <= EDGE ? (item & ~COLUMN) + x : GONE;
}

DEVICE bool at_player(State state, int item) { return (item & PLACE) == state[HERE]; }

DEVICE int comes_in(u32 side, u32 place) {
  int lane = ROW * (1 + below(place, LANES));
  return between(side, 0.0, 1.0) < 0.5 ? lane + GOING_RIGHT : lane + EDGE;
}

DEVICE void show(State state, Seen& seen, int items, int plane, bool trail) {
  for (int k = 1; k <= state[items]; k++) {
    int item = state[items + k], x = item & COLUMN, y = (item & PLACE) / ROW;
    int behind = item & GOING_RIGHT ? x - 1 : x + 1;
    light(seen, plane, y, x);
    if (trail && 0 <= behind && behind <= EDGE) light(seen, TRAIL, y, behind);
  }
}

DEVICE bool comes_the_other_way(State state, int items, int item) {
  for (int k = 1; k <= state[items]; k++)
    if (((state[items + k] ^ item) & (HEADING - COLUMN)) == GOING_RIGHT) return true;
  return false;
}

DEVICE void spawn(State state, u32 side, u32 kind, u32 place) {
  int item = comes_in(side, place);
  if (comes_the_other_way(state, SUBS, item) || comes_the_other_way(state, FISH, item)) return;
  item += MOVE * state[MOVE_SPEED];
  if (between(kind, 0.0, 1.0) < SUB_CHANCE)
    add(state, SUBS, MANY, item + SHOT * ENEMY_COOL_DOWN);
  else
    add(state, FISH, MANY, item);
}

DEVICE int move_bullets(State state) {
  int hits = 0;
  for (int k = state[BULLETS]; k > 0; k--) {
    int item = moved(state[BULLETS + k]);
    if (item == GONE) {
      remove(state, BULLETS, k);
      continue;
    }
    state[BULLETS + k] = item;
    if (!hit(state, FISH, item & PLACE) && !hit(state, SUBS, item & PLACE)) continue;
    remove_equal(state, BULLETS, item);
    hits += 1;
  }
  return hits;
}

DEVICE void move_divers(State state) {
  for (int k = state[DIVERS]; k > 0; k--) {
    int item = state[DIVERS + k];
    bool room = state[ABOARD] < MOST_ABOARD;
    if (!at_player(state, item) || !room) {
      bool rests = item / MOVE & TIMER;
      item = rests ? item - MOVE : moved(item);
      if (!rests && item != GONE) item += MOVE * DIVER_REST;
    }
    bool comes = room && item != GONE && at_player(state, item);
    state[DIVERS + k] = item;
    if (comes || item == GONE) remove_equal(state, DIVERS, item);
    if (comes) state[ABOARD] += 1;
  }
}

// Moves item k, which bullets may hit; returns its new k, 0 if it was removed. `item` becomes the moved item.
DEVICE int move_enemy(State state, int items, int k, int& item, int& hits, bool& lost) {
  item = state[items + k];
  lost |= at_player(state, item);
  if (item / MOVE & TIMER) {
    item -= MOVE;
    return k;
  }
  item = moved(item);
  if (item == GONE) {
    remove(state, items, k);
    return 0;
  }
  item += MOVE * state[MOVE_SPEED];
  if (at_player(state, item)) {
    lost = true;
    return k;
  }
  if (!hit(state, BULLETS, item & PLACE)) return k;
  state[items + k] = item;
  hits += 1;
  return remove_equal(state, items, item) < k ? k - 1 : 0;
}

DEVICE int move_enemies(State state, int items, bool shoot, bool& lost) {
  int hits = 0;
  for (int k = state[items]; k > 0; k--) {
    int item, at = move_enemy(state, items, k, item, hits, lost);
    if (item >= SHOT) {
      item -= SHOT;
    } else if (shoot && item != GONE) {
      add(state, TORPEDOES, MOST, item & HEADING);
      item += SHOT * ENEMY_COOL_DOWN;
    }
    if (at > 0) state[items + at] = item;
  }
  return hits;
}

DEVICE bool move_torpedoes(State state) {
  bool lost = false;
  for (int k = state[TORPEDOES]; k > 0; k--) {
    int item = moved(state[TORPEDOES + k]);
    lost |= at_player(state, state[TORPEDOES + k]) || at_player(state, item);
    if (item == GONE)
      remove(state, TORPEDOES, k);
    else
      state[TORPEDOES + k] = item;
  }
  return lost;
}
