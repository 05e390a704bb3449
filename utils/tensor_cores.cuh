// Multiplies matrices with the tensor cores of a block's warps: m16n8k8 of tf32, or m16n8k16 of bf16 (PTX ISA, 9.7.14).
//
// Operands are rounded here, to nearest. A product of two is exact, sums are float32. The order in which a GPU adds is
// not specified, so only these results may have other bits on a GPU than on the host (tests/on_host.h).
#include "utils/device_math.cuh"

struct Matrix {
  const float* at;  // the first element
  int row, column;  // how many floats the next row, and the next column, is away
};

DEVICE u32 as_tf32(float x) {  // 10 bits of mantissa, halves are rounded away from 0; NaN stays NaN
  u32 bits = (u32)__float_as_int(x);
  return x != x ? bits : (bits + 0x1000u) & ~0x1FFFu;
}

DEVICE u32 as_bf16(float x) {  // 7 bits of mantissa, halves are rounded to even
  u32 bits = (u32)__float_as_int(x);
  return x != x ? 0x7FC0u : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}

// What one register of a thread holds of an operand: one number (tf32), or two neighbours along the sum (bf16).
template <bool BF16>
DEVICE u32 held(const float* at, int next) {
  if constexpr (BF16) return as_bf16(at[0]) | as_bf16(at[next]) << 16;
  return as_tf32(at[0]);
}

#ifndef TENSOR_CORES  // tests/on_host.h defines it and has its own multiply_add
template <bool BF16>
DEVICE void multiply_add(float* sum, const u32* a, const u32* b) {
  if constexpr (BF16)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// Multiplies a [M, K] by b [K, N]; a warp computes pieces of 16 x 8 results. A sum starts at begin(row, column);
// end(row, column, sum) stores it. M and K are multiples of 16, N of 8. All threads of the block must call this.
template <bool BF16, int M, int N, int K, class Begin, class End>
DEVICE void multiply(const Matrix& a, const Matrix& b, const Begin& begin, const End& end) {
  const int each = BF16 ? 2 : 1, half = 4 * each;  // numbers in a register; in a register of each of four threads
  int group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;
  for (int piece = threadIdx.x / 32; piece < M / 16 * (N / 8); piece += blockDim.x / 32) {
    int row = piece % (M / 16) * 16 + group, column = piece / (M / 16) * 8, right = column + 2 * place;
    float sum[4] = {begin(row, right), begin(row, right + 1), begin(row + 8, right), begin(row + 8, right + 1)};
    const float* of_row = a.at + row * a.row + each * place * a.column;
    const float* of_column = b.at + (column + group) * b.column + each * place * b.row;
#pragma unroll 2
    for (int k = 0; k < K; k += 2 * half) {
      u32 x[4], y[2];
#pragma unroll
      for (int i = 0; i < 4; i++)
        x[i] = held<BF16>(of_row + i % 2 * 8 * a.row + (k + i / 2 * half) * a.column, a.column);
#pragma unroll
      for (int i = 0; i < 2; i++) y[i] = held<BF16>(of_column + (k + i * half) * b.row, b.row);
      multiply_add<BF16>(sum, x, y);
    }
    end(row, right, sum[0]);
    end(row, right + 1, sum[1]);
    end(row + 8, right, sum[2]);
    end(row + 8, right + 1, sum[3]);
  }
}
