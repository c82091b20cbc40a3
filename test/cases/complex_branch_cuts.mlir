// Complex functions at -0 on a branch cut, and powers of one and of infinity, as JAX's decompositions have them.
// expect: out0 complex<f32>[2] -1.57079637 1.56679928 1.57079637 1.56679928
// expect: out1 complex<f32>[2] 3.14159274 -1.56679928 0 -1.56679928
// expect: out2 complex<f32>[2] 1.56679928 3.14159274 1.56679928 0
// expect: out3 complex<f32>[2] 1.56679928 -1.57079637 1.56679928 1.57079637
// expect: out4 complex<f32>[4] 1 0 inf 0 0 0 inf 0
func.func @main() -> (tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>, tensor<4xcomplex<f32>>) {
  %x = stablehlo.constant dense<[(-2.5, -0.0), (2.5, -0.0)]> : tensor<2xcomplex<f32>>
  %y = stablehlo.constant dense<[(-0.0, -2.5), (-0.0, 2.5)]> : tensor<2xcomplex<f32>>
  %0 = "chlo.asin"(%x) : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
  %1 = "chlo.acos"(%x) : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
  %2 = "chlo.acosh"(%x) : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
  %3 = "chlo.asinh"(%y) : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
  %a = stablehlo.constant dense<[(1.0, -0.0), (0x7F800000, 0.0), (0x7F800000, -0.0), (0x7F800000, 0.0)]> : tensor<4xcomplex<f32>>
  %b = stablehlo.constant dense<[(0.0, 0x7F800000), (2.5, 0.0), (-2.5, 0.0), (0x7F800000, 0.0)]> : tensor<4xcomplex<f32>>
  %4 = stablehlo.power %a, %b : tensor<4xcomplex<f32>>
  return %0, %1, %2, %3, %4 : tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>, tensor<4xcomplex<f32>>
}
