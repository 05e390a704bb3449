// Losses of PPO and REINFORCE, and their gradients ("slopes") at a head's outputs. One thread computes one sample of a
// tile (nets.cuh).
//
// The formulas are those of agents/ppo.py and agents/reinforce.py. Sizes, defined by learn.py:
//   ACTIONS, GAUSSIAN, MASKED        number of choices, or of numbers if GAUSSIAN; whether some may be forbidden
//   LOG_STD                          offset of the log standard deviations in `parameters`
//   REINFORCE                        1: REINFORCE, 0: PPO
#include "agents/engines/fused_gpu/nets.cuh"
#include "agents/networks/heads.py"

const float HALF_LOG_2PI = 0.918938533f, HALF_LOG_2PIE = 1.41893853f;
const int METRIC_SUMS = 5;  // sums for metrics, in the order of Sum in plan/numbers.py

struct Rows {  // columns of the rollout's rows, each [R]
  const void* obs;
  const void* action;  // i64, or float [R, ACTIONS]
  const u8* mask;      // [R, ACTIONS]
};

DEVICE float log_std_of(const float* parameters, int k) {
  return clip(parameters[LOG_STD + k], (float)LOG_STD_BOUNDS_0, (float)LOG_STD_BOUNDS_1);
}

// Discrete actions: turns the logits z into log-probabilities, and writes probabilities to p. If no action is allowed,
// all get the same probability.
DEVICE void log_softmax(float* z, float* p, const u8* mask) {
  float largest = -3e38f, total = 0.0f;
  bool some_allowed = false;
  for (int k = 0; MASKED && k < ACTIONS; k++) some_allowed |= mask[k];
  for (int k = 0; k < ACTIONS; k++) {
    if (MASKED && !(some_allowed && mask[k])) z[k] = some_allowed ? (float)IMPOSSIBLE : 0.0f;
    largest = z[k] > largest ? z[k] : largest;
  }
  for (int k = 0; k < ACTIONS; k++) total += p[k] = simd_math::exp32(z[k] - largest);
  float scale = 1.0f / total, level = largest + simd_math::log32(total);
  for (int k = 0; k < ACTIONS; k++) {
    z[k] -= level;
    p[k] *= scale;
  }
}

// Returns the log-probability of a row's action. z: the head's outputs, logits (become log-probabilities) or means.
DEVICE float log_prob_of(const Rows& rows, i64 row, const float* parameters, float* z, float* p) {
  if (!GAUSSIAN) {
    log_softmax(z, p, rows.mask + row * ACTIONS);
    return z[((const i64*)rows.action)[row]];
  }
  float sum = 0.0f;
  for (int k = 0; k < ACTIONS; k++) {
    float log_std = log_std_of(parameters, k);
    float distance = (((const float*)rows.action)[row * ACTIONS + k] - z[k]) * simd_math::exp32(-log_std);
    sum += -0.5f * distance * distance - log_std - HALF_LOG_2PI;
  }
  return sum;
}

DEVICE float entropy_of(const float* parameters, const float* z, const float* p) {
  float sum = 0.0f;
  for (int k = 0; k < ACTIONS; k++)
    if (GAUSSIAN) sum += log_std_of(parameters, k) + HALF_LOG_2PIE;
    else sum -= p[k] * z[k];
  return sum;
}

// Returns d loss / d log pi, and adds to the sums for metrics. `weight` is the advantage A, `share` the sample's share
// of the mean. Loss of PPO: -share min(r A, clip(r) A) with r = pi / pi_old; of REINFORCE: -share log pi A.
DEVICE float surrogate(float log_prob, float old_log_prob, float weight, float share, float limit, float* metrics) {
  if (REINFORCE) {
    metrics[SUM_POLICY_LOSS] -= share * weight * log_prob;
    return -share * weight;
  }
  float log_ratio = log_prob - old_log_prob, ratio = simd_math::exp32(log_ratio);
  float unclipped = ratio * weight, clipped = clip(ratio, 1.0f - limit, 1.0f + limit) * weight;
  bool active = unclipped <= clipped;
  metrics[SUM_POLICY_LOSS] -= share * (active ? unclipped : clipped);
  metrics[SUM_KL] += share * (ratio - 1.0f - log_ratio);
  metrics[SUM_CLIPPED] += fabsf(ratio - 1.0f) > limit ? share : 0.0f;
  return active || unclipped != unclipped ? -share * unclipped : 0.0f;  // a NaN must reach the gradient
}

// Turns z into the loss's slope at the head's outputs; GAUSSIAN: writes the slope of log_std to p.
DEVICE void actor_loss(const Rows& rows, i64 row, const float* parameters, const double* live, float old_log_prob,
                       float weight, float share, float* z, float* p, float* metrics) {
  float log_prob = log_prob_of(rows, row, parameters, z, p), entropy_coef = (float)live[LIVE_ENTROPY];
  float entropy = entropy_of(parameters, z, p);
  float slope = surrogate(log_prob, old_log_prob, weight, share, (float)live[LIVE_CLIP], metrics);
  metrics[SUM_ENTROPY] += share * entropy;
  if (GAUSSIAN) {
    for (int k = 0; k < ACTIONS; k++) {
      float log_std = log_std_of(parameters, k), inverse = simd_math::exp32(-log_std);
      float distance = (((const float*)rows.action)[row * ACTIONS + k] - z[k]) * inverse;
      bool inside = log_std == parameters[LOG_STD + k];
      p[k] = inside ? slope * (distance * distance - 1.0f) - share * entropy_coef : 0.0f;
      z[k] = slope * distance * inverse;
    }
  } else {  // d log pi(a) / d z_k = 1{k = a} - p_k, d entropy / d z_k = -p_k (log p_k + entropy)
    int taken = (int)((const i64*)rows.action)[row];
    for (int k = 0; k < ACTIONS; k++) {
      float push = slope * ((k == taken ? 1.0f : 0.0f) - p[k]);
      z[k] = push + share * entropy_coef * p[k] * (z[k] + entropy);
      if (MASKED && !rows.mask[row * ACTIONS + k]) z[k] = 0.0f;
    }
  }
}

// Returns the loss's slope at the value, and adds the loss to the metrics: the squared error, or that of the value
// clipped to old +- limit if it is larger.
DEVICE float critic_loss(float value, float old, float target, float share, const double* live, float* metrics) {
  float limit = (float)live[LIVE_VALUE_CLIP], error = value - target, moved = value - old;
  float clipped_move = clip(moved, -limit, limit), clipped_error = old + clipped_move - target;
  // rounding alone can make the clipped copy the larger one where nothing was clipped
  bool is_unclipped = clipped_move == moved || error * error >= clipped_error * clipped_error || error != error;
  metrics[SUM_VALUE_LOSS] += share * (is_unclipped ? error * error : clipped_error * clipped_error);
  return is_unclipped ? (float)(2.0 * live[LIVE_VALUE]) * share * error : 0.0f;
}
