// 64-bit integers are printed with all their digits.
// expect: out0 i64[2] 9223372036854775807 -9223372036854775808
// expect: out1 ui64[] 18446744073709551615
func.func @main() -> (tensor<2xi64>, tensor<ui64>) {
  %0 = stablehlo.constant dense<[9223372036854775807, -9223372036854775808]> : tensor<2xi64>
  %1 = stablehlo.constant dense<18446744073709551615> : tensor<ui64>
  return %0, %1 : tensor<2xi64>, tensor<ui64>
}
