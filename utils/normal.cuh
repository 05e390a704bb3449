// Standard normal numbers, as `normal` of utils/counter_rng.py: a uniform becomes a normal number by the inverse of the
// normal distribution function (ndtri of the library Cephes), in float64.
#include "utils/device_math.cuh"

namespace normal {

const double S_2PI = 2.50662827463100050242, TAIL = 0.13533528323661269189;  // sqrt(2 pi), exp(-2)

template <int N>
DEVICE double polynomial(double x, const double (&coefficients)[N]) {
  double sum = coefficients[0];
#pragma unroll
  for (int k = 1; k < N; k++) sum = fma(sum, x, coefficients[k]);
  return sum;
}

// The inverse for probability 0.5 + y, where |y| < 0.5 - exp(-2).
DEVICE double middle(double y) {
  const double above[] = {-5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1,
                          1.39312609387279679503e1, -1.23916583867381258016e0};
  const double below[] = {1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1,
                          -2.25462687854119370527e2, 2.00260212380060660359e2, -8.20372256168333339912e1,
                          1.59056225126211695515e1, -1.18331621121330003142e0};
  double z = y * y;
  return (y + y * (z * polynomial(z, above) / polynomial(z, below))) * S_2PI;
}

// Minus the inverse for a probability y in (0, exp(-2)]. Cephes has other coefficients below exp(-32), where no y is.
DEVICE double tail(double y) {
  const double above[] = {4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1,
                          4.40805073893200834700e1, 1.46849561928858024014e1, 2.18663306850790267539e0,
                          -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4};
  const double below[] = {1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1,
                          1.50425385692907503408e1, 2.50464946208309415979e0, -1.42182922854787788574e-1,
                          -3.80806407691578277194e-2, -9.33259480895457427372e-4};
  double x = sqrt(-2.0 * simd_math::log(y)), z = 1.0 / x;
  return (x - simd_math::log(x) / x) - z * polynomial(z, above) / polynomial(z, below);
}

// The normal number for a uniform in [0, 1), a multiple of 2**-24. Half a step is added, so that 0 gives no infinity.
DEVICE float of(float uniform) {
  double y = (double)uniform + 0x1p-25;
  if (y <= TAIL) return (float)-tail(y);
  return (float)(y > 1.0 - TAIL ? tail(1.0 - y) : middle(y - 0.5));
}

}  // namespace normal
