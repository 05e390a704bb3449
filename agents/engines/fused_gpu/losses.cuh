// PPO's and REINFORCE's losses of a sample and their slopes at a head's outputs: a thread a sample, of a tile in nets.cuh.
//
// The formulas are those of agents/ppo.py and agents/reinforce.py. Sizes, of learn.py:
//   ACTIONS, GAUSSIAN, MASKED        choices, some of them not allowed, or numbers
//   LOG_STD                          where the deviation of numbers lies in `parameters`
//   REINFORCE                        else PPO
#include "agents/engines/fused_gpu/nets.cuh"
#include "agents/networks/heads.py"

const float HALF_LOG_2PI = 0.918938533f, HALF_LOG_2PIE = 1.41893853f;
const int TOLD = 5;

struct Rows {  // of the rollout, each [R]
  const void* obs;
  const void* action;  // i64, or float [R, ACTIONS]
  const u8* mask;      // [R, ACTIONS]
};

DEVICE float spread_of(const float* parameters, int k) {
  return clip(parameters[LOG_STD + k], (float)LOG_STD_BOUNDS_0, (float)LOG_STD_BOUNDS_1);
}

// Choices: z becomes log-probabilities, p probabilities. Where nothing is allowed all are alike.
DEVICE void log_softmax(float* z, float* p, const u8* mask) {
  float largest = -3e38f, total = 0.0f;
  bool some = false;
  for (int k = 0; MASKED && k < ACTIONS; k++) some |= mask[k];
  for (int k = 0; k < ACTIONS; k++) {
    if (MASKED && !(some && mask[k])) z[k] = some ? (float)IMPOSSIBLE : 0.0f;
    largest = z[k] > largest ? z[k] : largest;
  }
  for (int k = 0; k < ACTIONS; k++) total += p[k] = simd_math::exp32(z[k] - largest);
  float share = 1.0f / total, level = largest + simd_math::log32(total);
  for (int k = 0; k < ACTIONS; k++) {
    z[k] -= level;
    p[k] *= share;
  }
}

// log pi of a row's action, from the head's outputs z.
DEVICE float log_prob_of(const Rows& rows, i64 row, const float* parameters, float* z, float* p) {
  if (!GAUSSIAN) {
    log_softmax(z, p, rows.mask + row * ACTIONS);
    return z[((const i64*)rows.action)[row]];
  }
  float sum = 0.0f;
  for (int k = 0; k < ACTIONS; k++) {
    float spread = spread_of(parameters, k);
    float distance = (((const float*)rows.action)[row * ACTIONS + k] - z[k]) * simd_math::exp32(-spread);
    sum += -0.5f * distance * distance - spread - HALF_LOG_2PI;
  }
  return sum;
}

DEVICE float entropy_of(const float* parameters, const float* z, const float* p) {
  float sum = 0.0f;
  for (int k = 0; k < ACTIONS; k++)
    if (GAUSSIAN) sum += spread_of(parameters, k) + HALF_LOG_2PIE;
    else sum -= p[k] * z[k];
  return sum;
}

// d loss / d log pi, and what is told. PPO: -share min(r A, clip(r) A) with r = pi / pi_old; REINFORCE: -share log pi A.
DEVICE float surrogate(float now, float old, float weight, float share, float limit, float* told) {
  if (REINFORCE) {
    told[SUM_POLICY_LOSS] -= share * weight * now;
    return -share * weight;
  }
  float log_ratio = now - old, ratio = simd_math::exp32(log_ratio);
  float free = ratio * weight, held = clip(ratio, 1.0f - limit, 1.0f + limit) * weight;
  bool active = free <= held;
  told[SUM_POLICY_LOSS] -= share * (active ? free : held);
  told[SUM_KL] += share * (ratio - 1.0f - log_ratio);
  told[SUM_CLIPPED] += fabsf(ratio - 1.0f) > limit ? share : 0.0f;
  return active || free != free ? -share * free : 0.0f;  // a NaN must reach the gradient, where it is noticed
}

// z becomes the slope at the head, p of numbers the slope of their log_std; of a sample that fills up both are 0.
DEVICE void actor_loss(const Rows& rows, i64 row, const float* parameters, const double* live, float old, float weight,
                       float share, float* z, float* p, float* told) {
  float now = log_prob_of(rows, row, parameters, z, p), bonus = (float)live[LIVE_ENTROPY];
  float entropy = entropy_of(parameters, z, p);
  float slope = surrogate(now, old, weight, share, (float)live[LIVE_CLIP], told);
  told[SUM_ENTROPY] += share * entropy;
  if (GAUSSIAN) {
    for (int k = 0; k < ACTIONS; k++) {
      float spread = spread_of(parameters, k), inverse = simd_math::exp32(-spread);
      float distance = (((const float*)rows.action)[row * ACTIONS + k] - z[k]) * inverse;
      bool inside = spread == parameters[LOG_STD + k];
      p[k] = inside ? slope * (distance * distance - 1.0f) - share * bonus : 0.0f;
      z[k] = slope * distance * inverse;
    }
  } else {  // d log pi(a) / d z_k = 1{k = a} - p_k, d entropy / d z_k = -p_k (log p_k + entropy)
    int taken = (int)((const i64*)rows.action)[row];
    for (int k = 0; k < ACTIONS; k++) {
      float push = slope * ((k == taken ? 1.0f : 0.0f) - p[k]);
      z[k] = push + share * bonus * p[k] * (z[k] + entropy);
      if (MASKED && !rows.mask[row * ACTIONS + k]) z[k] = 0.0f;
    }
  }
}

// The slope at the value; told: the loss, that of a clipped copy where it is the larger one.
DEVICE float critic_loss(float value, float old, float target, float share, const double* live, float* told) {
  float limit = (float)live[LIVE_VALUE_CLIP], error = value - target, moved = value - old;
  float held = clip(moved, -limit, limit), other = old + held - target;
  // rounding alone can make the clipped copy the larger one where nothing was clipped
  bool free = held == moved || error * error >= other * other || error != error;
  told[SUM_VALUE_LOSS] += share * (free ? error * error : other * other);
  return free ? (float)(2.0 * live[LIVE_VALUE]) * share * error : 0.0f;
}
