// The estimators of returns.py that go through a rollout row by row: a thread a world, tensors [T, N]. The same sums in the
// same order as torch's on the CPU, where addcmul is fma and lerp starts from the nearer end.
#include "utils/device_math.cuh"

#define WORLD                                      \
  int world = blockIdx.x * blockDim.x + threadIdx.x; \
  if (world >= worlds) return;
#define BACKWARDS for (i64 i = (i64)(steps - 1) * worlds + world; i >= 0; i -= worlds)

DEVICE float unless(u8 flag) { return flag ? 0.0f : 1.0f; }

DEVICE float lerp(float from, float to, float weight) {
  float way = to - from;
  return weight < 0.5f ? fmaf(weight, way, from) : fmaf(-way, 1.0f - weight, to);
}

extern "C" __global__ void gae(const float* reward, const u8* terminated, const u8* truncated, const float* v_t,
                               const float* v_tp1, double gamma, double lambda, float* advantage, int steps,
                               int worlds) {
  WORLD
  float ahead = 0.0f, keep = (float)(gamma * lambda);
  BACKWARDS {
    float delta = fmaf((float)gamma * v_tp1[i], unless(terminated[i]), reward[i] - v_t[i]);
    advantage[i] = ahead = fmaf(keep * unless(terminated[i] | truncated[i]), ahead, delta);
  }
}

extern "C" __global__ void vtrace(const float* reward, const u8* terminated, const u8* truncated, const float* v_t,
                                  const float* v_tp1, const float* ratio, double gamma, double lambda,
                                  float* advantage, int steps, int worlds) {
  WORLD
  float ahead = 0.0f, keep = (float)(gamma * lambda);
  BACKWARDS {
    float delta = fmaf((float)gamma * v_tp1[i], unless(terminated[i]), reward[i] - v_t[i]);
    float whole = fmaf(keep * unless(terminated[i] | truncated[i]), ahead, delta);
    advantage[i] = ahead = whole * (ratio[i] > 1.0f ? 1.0f : ratio[i]);
  }
}

extern "C" __global__ void reward_to_go(const float* reward, const u8* terminated, const u8* truncated,
                                        const float* v_tp1, double gamma, float* returns, int steps, int worlds) {
  WORLD
  float ahead = v_tp1[(i64)(steps - 1) * worlds + world];
  BACKWARDS {
    float future = truncated[i] ? v_tp1[i] : ahead;
    returns[i] = ahead = fmaf(unless(terminated[i]) * (float)gamma, future, reward[i]);
  }
}

extern "C" __global__ void lambda_returns(const float* reward, const u8* terminated, const u8* truncated,
                                          const float* v_tp1, double gamma, double lambda, float* returns, int steps,
                                          int worlds) {
  WORLD
  float ahead = v_tp1[(i64)(steps - 1) * worlds + world];
  BACKWARDS {
    float mixed = truncated[i] ? v_tp1[i] : lerp(v_tp1[i], ahead, (float)lambda);
    returns[i] = ahead = fmaf((float)gamma * unless(terminated[i]), mixed, reward[i]);
  }
}

extern "C" __global__ void from_episode_start(const float* returns, const u8* is_first, float* whole, int steps,
                                              int worlds) {
  WORLD
  float current = returns[world];
  for (i64 i = world; i < (i64)steps * worlds; i += worlds) whole[i] = current = is_first[i] ? returns[i] : current;
}
