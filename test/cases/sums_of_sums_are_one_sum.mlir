// A sum of sums is one sum, in whatever order a program names the dimensions: their difference is 0, as in XLA. JAX's
// gradients of a broadcast have dimensions of one element between the sums.
// expect: out0 f32[4] 0 0 0 0
func.func @main() -> tensor<4xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %i = stablehlo.iota dim = 0 : tensor<4032xf32>
  %s = stablehlo.sine %i : tensor<4032xf32>
  %x = stablehlo.reshape %s : (tensor<4032xf32>) -> tensor<6x12x14x4xf32>
  %a = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [2] : (tensor<6x12x14x4xf32>, tensor<f32>) -> tensor<6x12x4xf32>
  %b = stablehlo.reshape %a : (tensor<6x12x4xf32>) -> tensor<6x12x1x4xf32>
  %c = stablehlo.reduce(%b init: %z) applies stablehlo.add across dimensions = [2] : (tensor<6x12x1x4xf32>, tensor<f32>) -> tensor<6x12x4xf32>
  %d = stablehlo.reduce(%c init: %z) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x12x4xf32>, tensor<f32>) -> tensor<4xf32>
  %n = stablehlo.negate %x : tensor<6x12x14x4xf32>
  %e = stablehlo.reduce(%n init: %z) applies stablehlo.add across dimensions = [1] : (tensor<6x12x14x4xf32>, tensor<f32>) -> tensor<6x14x4xf32>
  %f = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [0, 1] : (tensor<6x14x4xf32>, tensor<f32>) -> tensor<4xf32>
  %r = stablehlo.add %d, %f : tensor<4xf32>
  return %r : tensor<4xf32>
}
