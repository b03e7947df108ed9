// Activations and row normalisations. Transcendental functions are our own, in double precision with explicit FMA, so
// that their bits do not depend on the C library, the processor or the place of a value in a vector.
#pragma once

#include "livegnn/program.h"

namespace livegnn {

double exact_exp(double x);  // within 1 ulp of double for |x| < 700; 0 and infinity beyond
double exact_log(double x);  // x > 0

void activate_row(ActivationKind kind, float parameter, const float* x, float* out, int width);
void softmax_row(const float* x, float* out, int width);  // over the row
void log_softmax_row(const float* x, float* out, int width);
void l2_normalize_row(const float* x, float eps, float* out, int width);  // x / max(|x|, eps)
void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* out, int width);
void prelu_row(const float* x, const float* slope, float* out, int width);

// A row, or one column that counts for all columns.
struct Operand {
  const float* row;
  int step;  // 1 or 0

  float operator[](int i) const { return row[i * step]; }
};

// Column by column, as Op says.
void minimum_row(Operand a, Operand b, float* out, int width);
void divide_row(Operand a, Operand b, float* out, int width);
void less_row(Operand a, Operand b, float* out, int width);
void where_row(Operand c, Operand a, Operand b, float* out, int width);

}  // namespace livegnn
