#include "moec/Dialect/Moe/Moe.h"
using namespace mlir;
using namespace moec::moe;
LogicalResult ParamOp::verify() { return success(); }
LogicalResult RouteOp::verify() { return success(); }
LogicalResult RouteOp::verifyRegions() { return success(); }
LogicalResult PermuteOp::verify() { return success(); }
LogicalResult GroupedMatmulOp::verify() { return success(); }
LogicalResult GroupedMatmulOp::verifyRegions() { return success(); }
LogicalResult RowMapOp::verify() { return success(); }
LogicalResult RowMapOp::verifyRegions() { return success(); }
LogicalResult UnpermuteOp::verify() { return success(); }
