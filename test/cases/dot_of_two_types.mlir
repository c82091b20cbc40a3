// A product is made in the widest type of its operands and its result: none of them is rounded first, nothing wraps.
// expect: out0 f32[1] 9.31322575e-10
// expect: out1 f32[1] 9.31322575e-10
// expect: out2 f32[1] 1.84467441e+19
func.func @main() -> (tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) {
  %one = stablehlo.constant dense<[1.0, 1.0]> : tensor<2xf32>
  %near = stablehlo.constant dense<[1.000000000931322574615478515625, -1.0]> : tensor<2xf64>
  %n = stablehlo.reshape %near : (tensor<2xf64>) -> tensor<2x1xf64>
  %m = stablehlo.reshape %near : (tensor<2xf64>) -> tensor<1x2xf64>
  %0 = stablehlo.dot_general %one, %n, contracting_dims = [0] x [0] : (tensor<2xf32>, tensor<2x1xf64>) -> tensor<1xf32>
  %1 = stablehlo.dot_general %m, %one, contracting_dims = [1] x [0] : (tensor<1x2xf64>, tensor<2xf32>) -> tensor<1xf32>
  %big = stablehlo.constant dense<[4294967296, 0]> : tensor<2xi64>
  %row = stablehlo.constant dense<[[4294967296], [1]]> : tensor<2x1xi64>
  %2 = stablehlo.dot_general %big, %row, contracting_dims = [0] x [0] : (tensor<2xi64>, tensor<2x1xi64>) -> tensor<1xf32>
  return %0, %1, %2 : tensor<1xf32>, tensor<1xf32>, tensor<1xf32>
}
