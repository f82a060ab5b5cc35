#include "tessera/pipelines/residence.h"

#include "tessera/base/error.h"

namespace tessera::pipelines {

void Residence::add(Component& component) {
  if (component.module != nullptr) places_.push_back({&component});
}

void Residence::drop_all() {
  // Work in flight may still read the weights.
  context_.synchronise();
  for (Place& place : places_) drop(place);
}

void Residence::drop(Place& place) {
  place.stream.reset();
  place.component->store->drop();
  place.placed = false;
}

void Residence::place(Place& place) const {
  if (place.placed) return;
  Component& component = *place.component;
  if (offload_ == Offload::kGroup && component.module->has_repeated_blocks()) {
    place.stream = std::make_unique<nn::BlockStream>(*component.module, *component.store, context_,
                                                     mesh(component), dtype_);
  } else {
    try {
      component.store->place(context_, mesh(component), dtype_);
    } catch (...) {
      component.store->drop();
      throw;
    }
  }
  place.placed = true;
}

void Residence::refuse_split() const {
  if (!split_) return;
  invalid_argument(
      "a pipeline that is split over {} ranks stays on their devices; load it without tensor parallel to "
      "move "
      "or offload it",
      mesh_->ranks());
}

void Residence::split_over(const graph::MeshPtr& mesh) {
  std::lock_guard lock(mutex_);
  move_all(mesh);
  split_ = true;
}

void Residence::to(const graph::MeshPtr& mesh) {
  std::lock_guard lock(mutex_);
  refuse_split();
  move_all(mesh);
}

void Residence::move_all(const graph::MeshPtr& mesh) {
  drop_all();
  mesh_ = mesh;
  offload_ = Offload::kNone;
  try {
    for (Place& p : places_) place(p);
  } catch (...) {
    drop_all();
    throw;
  }
}

void Residence::offload_to(const graph::MeshPtr& mesh, Offload offload) {
  std::lock_guard lock(mutex_);
  refuse_split();
  drop_all();
  mesh_ = mesh;
  offload_ = offload;
}

const graph::MeshPtr& Residence::mesh() const {
  std::lock_guard lock(mutex_);
  if (!mesh_) mesh_ = context_.mesh();
  return mesh_;
}

graph::MeshPtr Residence::mesh(const Component& component) const {
  if (!component.on_one_device || mesh_->size() == 1) return mesh_;
  return context_.mesh({mesh_->device, mesh_->devices.front()});
}

std::int64_t Residence::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const Place& place : places_) bytes += place.component->store->bytes(dtype_);
  return bytes;
}

std::vector<Component*> Residence::components() const {
  std::vector<Component*> out;
  for (const Place& place : places_) out.push_back(place.component);
  return out;
}

std::unique_lock<std::mutex> Residence::turn() const {
  return offload_ != Offload::kNone ? std::unique_lock(turn_) : std::unique_lock<std::mutex>();
}

Residence::Use::Use(const Residence& residence, const Component& component)
    : residence_(residence), index_(0) {
  residence.mesh();
  std::lock_guard lock(residence.mutex_);
  std::vector<Place>& places = residence.places_;
  while (index_ < places.size() && places[index_].component != &component) ++index_;
  check_internal(index_ < places.size(), "a component that its pipeline did not add is used");
  residence.place(places[index_]);
  ++places[index_].users;
}

Residence::Use::~Use() {
  std::lock_guard lock(residence_.mutex_);
  Place& place = residence_.places_[index_];
  if (--place.users > 0 || residence_.offload_ == Offload::kNone) return;
  // What the component computed is wanted, and work in flight may still read its weights.
  residence_.context_.synchronise();
  drop(place);
}

}  // namespace tessera::pipelines
