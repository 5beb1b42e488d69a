#include "operation.h"

#include <algorithm>
#include <cstring>

namespace ep {
namespace {

std::map<std::string, MakeOperation, std::less<>> &registry() {
  static std::map<std::string, MakeOperation, std::less<>> factories;
  return factories;
}

} // namespace

const Attributes::Value &Attributes::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end())
    throw Mistake("attribute is missing: " + std::string(name));
  return found->second;
}

int64_t Attributes::integer(std::string_view name) const { return integers(name).at(0); }

int64_t Attributes::integer(std::string_view name, int64_t otherwise) const {
  return has(name) ? integer(name) : otherwise;
}

float Attributes::number(std::string_view name, float otherwise) const {
  return has(name) ? numbers(name).at(0) : otherwise;
}

std::vector<int64_t> Attributes::integers(std::string_view name) const {
  const auto *found = std::get_if<std::vector<int64_t>>(&find(name));
  if (found == nullptr)
    throw Mistake("attribute should be integers: " + std::string(name));
  return *found;
}

std::vector<float> Attributes::numbers(std::string_view name) const {
  return std::visit([](const auto &values) {
    return std::vector<float>(values.begin(), values.end());
  }, find(name));
}

const Spec &Planning::input(size_t index) const {
  need(has(index), "an input is missing");
  return *inputs[index];
}

std::vector<int64_t> Planning::integers(size_t index) const {
  const Spec &spec = input(index);
  need(known[index] != nullptr, "an input isn't known beforehand");
  std::vector<int64_t> values(size_t(spec.shape.count()));
  if (spec.type == DType::kInt64) {
    std::memcpy(values.data(), known[index], values.size() * sizeof(int64_t));
    return values;
  }
  need(spec.type == DType::kInt32, "an input should be integers");
  const auto *narrow = reinterpret_cast<const int32_t *>(known[index]);
  std::copy(narrow, narrow + values.size(), values.begin());
  return values;
}

Registration::Registration(const char *name, MakeOperation make) { registry()[name] = make; }

std::unique_ptr<Operation> make_operation(std::string_view name, const Making &making) {
  const auto found = registry().find(name);
  if (found == registry().end())
    throw Mistake("no such operation: " + std::string(name));
  return found->second(making);
}

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const auto &[name, make] : registry())
    names.push_back(name);
  return names;
}

Chunks::Chunks(int64_t total_items, int64_t least, int64_t most) : total(total_items) {
  least = std::max<int64_t>(least, 1);
  count = std::clamp<int64_t>(total / least, 1, most);
  size = std::max<int64_t>((total + count - 1) / count, 1);
  count = (total + size - 1) / size;
}

Shape broadcast_shape(const Shape &a, const Shape &b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result;
  for (int axis = 0; axis < rank; ++axis) {
    const int in_a = axis - (rank - a.rank());
    const int in_b = axis - (rank - b.rank());
    const int64_t mine = in_a < 0 ? 1 : a[in_a];
    const int64_t theirs = in_b < 0 ? 1 : b[in_b];
    need(mine == theirs || mine == 1 || theirs == 1, "shapes don't broadcast");
    result.append(mine == 1 ? theirs : mine);
  }
  return result;
}

int front_axis(int64_t axis, int rank) {
  need(axis >= -rank && axis < rank, "axis out of range");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

} // namespace ep
