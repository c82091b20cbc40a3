// A group reads a value and its bits, one as a view and one from memory: the check gives both the same data.
// expect: out0 ui8[2,3] 56 65 64 56 57 72
func.func @main() -> tensor<2x3xui8> {
  %0 = stablehlo.constant dense<[[1.0, 2.0, 2.0], [1.0, 1.0, 4.0]]> : tensor<2x3xf8E4M3FN>
  %1 = stablehlo.constant dense<[[1.0, 3.0, 2.0]]> : tensor<1x3xf8E4M3FN>
  %x, %y = stablehlo.optimization_barrier %0, %1 : tensor<2x3xf8E4M3FN>, tensor<1x3xf8E4M3FN>
  %b = stablehlo.broadcast_in_dim %y, dims = [0, 1] : (tensor<1x3xf8E4M3FN>) -> tensor<2x3xf8E4M3FN>
  %i = stablehlo.bitcast_convert %x : (tensor<2x3xf8E4M3FN>) -> tensor<2x3xui8>
  %j = stablehlo.bitcast_convert %b : (tensor<2x3xf8E4M3FN>) -> tensor<2x3xui8>
  %one = stablehlo.constant dense<1> : tensor<2x3xui8>
  %same = stablehlo.compare EQ, %x, %b : (tensor<2x3xf8E4M3FN>, tensor<2x3xf8E4M3FN>) -> tensor<2x3xi1>
  %less = stablehlo.compare LT, %i, %j : (tensor<2x3xui8>, tensor<2x3xui8>) -> tensor<2x3xi1>
  %next = stablehlo.add %i, %one : tensor<2x3xui8>
  %2 = stablehlo.select %less, %next, %i : tensor<2x3xi1>, tensor<2x3xui8>
  %3 = stablehlo.select %same, %j, %2 : tensor<2x3xi1>, tensor<2x3xui8>
  return %3 : tensor<2x3xui8>
}
