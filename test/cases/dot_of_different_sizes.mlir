// The error names the op, both sizes and their dimensions.
// error: contracting sizes differ, 3 (lhs dim 1) and 4 (rhs dim 0)
// error: dot_general
func.func @main(%a: tensor<2x3xf32>, %b: tensor<4x2xf32>) -> tensor<2x2xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<4x2xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
