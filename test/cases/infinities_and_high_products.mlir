// NaN is no infinity; the high half of a product of 32-bit numbers is that of the 64-bit product.
// expect: out0 i1[5] 1 1 0 0 0
// expect: out1 i1[5] 1 0 0 0 0
// expect: out2 i1[5] 0 1 0 0 0
// expect: out3 i32[3] 1073741823 -1 -1
func.func @main() -> (tensor<5xi1>, tensor<5xi1>, tensor<5xi1>, tensor<3xi32>) {
  %x = stablehlo.constant dense<[0x7F800000, 0xFF800000, 0x7FC00000, 3.0, -0.0]> : tensor<5xf32>
  %0 = "chlo.is_inf"(%x) : (tensor<5xf32>) -> tensor<5xi1>
  %1 = "chlo.is_pos_inf"(%x) : (tensor<5xf32>) -> tensor<5xi1>
  %2 = "chlo.is_neg_inf"(%x) : (tensor<5xf32>) -> tensor<5xi1>
  %a = stablehlo.constant dense<[2147483647, -2147483648, 65536]> : tensor<3xi32>
  %b = stablehlo.constant dense<[2147483647, 2, -65536]> : tensor<3xi32>
  %3 = "chlo.mulhi"(%a, %b) : (tensor<3xi32>, tensor<3xi32>) -> tensor<3xi32>
  return %0, %1, %2, %3 : tensor<5xi1>, tensor<5xi1>, tensor<5xi1>, tensor<3xi32>
}
