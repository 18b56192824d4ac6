#include "moec/Dialect/Tile/Tile.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionImplementation.h"
using namespace mlir;
using namespace moec::tile;
LogicalResult ConfigAttr::verify(function_ref<InFlightDiagnostic()>, StringRef, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) { return success(); }
LogicalResult KernelOp::verify() { return success(); }
LogicalResult TopKOp::verify() { return success(); }
LogicalResult TopKOp::verifyRegions() { return success(); }
LogicalResult RankOp::verify() { return success(); }
LogicalResult ContractOp::verify() { return success(); }
LogicalResult ContractOp::verifyRegions() { return success(); }
LogicalResult RowMapOp::verify() { return success(); }
LogicalResult RowMapOp::verifyRegions() { return success(); }
LogicalResult GatherReduceOp::verify() { return success(); }
void KernelOp::build(OpBuilder &builder, OperationState &state, StringRef name, FunctionType type) {
  state.addAttribute(SymbolTable::getSymbolAttrName(), builder.getStringAttr(name));
  state.addAttribute(getFunctionTypeAttrName(state.name), TypeAttr::get(type));
  Block *body = new Block();
  for (Type input : type.getInputs())
    body->addArgument(input, state.location);
  state.addRegion()->push_back(body);
}
ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  auto type = [](Builder &builder, ArrayRef<Type> args, ArrayRef<Type> results, function_interface_impl::VariadicFlag,
                 std::string &) { return builder.getFunctionType(args, results); };
  return function_interface_impl::parseFunctionOp(parser, result, false, getFunctionTypeAttrName(result.name), type,
                                                  getArgAttrsAttrName(result.name), getResAttrsAttrName(result.name));
}
void KernelOp::print(OpAsmPrinter &p) {
  function_interface_impl::printFunctionOp(p, *this, false, getFunctionTypeAttrName(), getArgAttrsAttrName(), getResAttrsAttrName());
}
