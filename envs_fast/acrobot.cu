// The GPU version of Acrobot-v1: the same results as acrobot.py, bit for bit.
// `slopes` divides by constants as written, because Numba compiles it without "arcp" (see world.cuh).
#include "envs_fast/world.cuh"
#include "envs_fast/acrobot.py"

typedef double Number;
typedef i64 Action;
typedef Row<float, WIDTH> Seen;

struct State {
  double a, b, c, d;  // theta_1, theta_2 (radians), and their speeds
};

struct Parameters {
  double time_limit;
};

struct Tables {};

DEVICE bool legal(i64& action, const Parameters& parameters, const Tables& tables) { return among(action, 3); }

// The derivatives of the state for a torque.
DEVICE State slopes(double theta_1, double theta_2, double speed_1, double speed_2, double torque) {
  double sine, cosine;
  simd_math::sincos(theta_2, sine, cosine);
  double d1 = COM_1 * COM_1 + (LENGTH_1 * LENGTH_1 + COM_2 * COM_2 + 2 * LENGTH_1 * COM_2 * cosine) + 1.0 + 1.0;
  double d2 = (COM_2 * COM_2 + LENGTH_1 * COM_2 * cosine) + 1.0;
  double phi_2 = COM_2 * GRAVITY * simd_math::cos(theta_1 + theta_2 - PI / 2.0);
  double phi_1 = -LENGTH_1 * COM_2 * (speed_2 * speed_2) * sine - 2 * LENGTH_1 * COM_2 * speed_2 * speed_1 * sine +
                 (COM_1 + LENGTH_1) * GRAVITY * simd_math::cos(theta_1 - PI / 2.0) + phi_2;
  double acceleration_2 = (torque + d2 / d1 * phi_1 - LENGTH_1 * COM_2 * (speed_1 * speed_1) * sine - phi_2) /
                          (COM_2 * COM_2 + 1.0 - d2 * d2 / d1);
  double acceleration_1 = -(d2 * acceleration_2 + phi_1) / d1;
  return {speed_1, speed_2, acceleration_1, acceleration_2};
}

DEVICE State moved(const State& state, double time, const State& slope) {
  return {state.a + time * slope.a, state.b + time * slope.b, state.c + time * slope.c, state.d + time * slope.d};
}

DEVICE double weighted(double k1, double k2, double k3, double k4) { return k1 + 2.0 * k2 + 2.0 * k3 + k4; }

DEVICE double wrap(double angle) {
  double size = fabs(angle);
#pragma unroll
  for (int k = 0; k < WRAPS; k++) size = size > PI ? size - 2.0 * PI : size;
  return angle < 0.0 ? -size : size;
}

DEVICE bool step(State& state, i64 action, const Moment& moment, const Parameters& parameters, const Tables& tables,
                 double& reward) {
  // one step of the classical Runge-Kutta method of order 4
  State slope[4], at = state;
  double torque = (double)((int)action - 1), times[3] = {DT / 2.0, DT / 2.0, DT};
#pragma unroll
  for (int k = 0; k < 4; k++) {
    slope[k] = slopes(at.a, at.b, at.c, at.d, torque);
    if (k < 3) at = moved(state, times[k], slope[k]);
  }
  State mean = {weighted(slope[0].a, slope[1].a, slope[2].a, slope[3].a),
                weighted(slope[0].b, slope[1].b, slope[2].b, slope[3].b),
                weighted(slope[0].c, slope[1].c, slope[2].c, slope[3].c),
                weighted(slope[0].d, slope[1].d, slope[2].d, slope[3].d)};
  State end = moved(state, DT / 6.0, mean);
  state = {wrap(end.a), wrap(end.b), clip(end.c, -MAX_SPEED_1, MAX_SPEED_1), clip(end.d, -MAX_SPEED_2, MAX_SPEED_2)};
  bool above = -simd_math::cos(state.a) - simd_math::cos(state.b + state.a) > 1.0;
  reward = above ? 0.0 : -1.0;
  return above;
}

// A uniform in +-RESET, rounded to float32 as in Gymnasium.
DEVICE double single(u32 word) { return (double)(float)between(word, -RESET, RESET); }

DEVICE State reset(const Episode& episode, const Parameters& parameters, const Tables& tables) {
  Words w = draw(0, episode);
  return {single(w.a), single(w.b), single(w.c), single(w.d)};
}

DEVICE Seen observe(const State& state, const Parameters& parameters) {
  double sine_1, cosine_1, sine_2, cosine_2;
  simd_math::sincos(state.a, sine_1, cosine_1);
  simd_math::sincos(state.b, sine_2, cosine_2);
  return {(float)cosine_1, (float)sine_1, (float)cosine_2, (float)sine_2, (float)state.c, (float)state.d};
}

WORLD_KERNELS(acrobot)
