// CHLO's scan in its own form: a running sum from the end.
// expect: out0 f32[2,3] 115 117 119 113 114 115
func.func @main() -> tensor<2x3xf32> {
  %x = stablehlo.constant dense<[[2.0, 3.0, 4.0], [13.0, 14.0, 15.0]]> : tensor<2x3xf32>
  %begin = stablehlo.constant dense<100.0> : tensor<3xf32>
  %0:2 = chlo.scan(%x) inits (%begin) dimension = 0 attributes {is_reverse = true} {
  ^bb0(%i: tensor<3xf32>, %c: tensor<3xf32>):
    %s = stablehlo.add %i, %c : tensor<3xf32>
    stablehlo.return %s, %s : tensor<3xf32>, tensor<3xf32>
  } : (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>)
  return %0#0 : tensor<2x3xf32>
}
