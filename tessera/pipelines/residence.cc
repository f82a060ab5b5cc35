#include "tessera/pipelines/residence.h"

#include "tessera/base/error.h"

namespace tessera::pipelines {

void Residence::add(Component& component) {
  if (component.module != nullptr) places_.push_back({&component});
}

void Residence::drop_all() {
  // Work in flight may still read the weights.
  context_.synchronise();
  for (Place& place : places_) {
    place.component->store->drop();
    place.placed = false;
  }
}

void Residence::place(Place& place) const {
  if (place.placed) return;
  place.component->store->place(context_, mesh_, dtype_);
  place.placed = true;
}

void Residence::to(const graph::MeshPtr& mesh) {
  std::lock_guard lock(mutex_);
  drop_all();
  mesh_ = mesh;
  offload_ = false;
  try {
    for (Place& p : places_) place(p);
  } catch (...) {
    drop_all();
    throw;
  }
}

void Residence::offload_to(const graph::MeshPtr& mesh) {
  std::lock_guard lock(mutex_);
  drop_all();
  mesh_ = mesh;
  offload_ = true;
}

const graph::MeshPtr& Residence::mesh() const {
  std::lock_guard lock(mutex_);
  if (!mesh_) mesh_ = context_.mesh();
  return mesh_;
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
  return offload_ ? std::unique_lock(turn_) : std::unique_lock<std::mutex>();
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
  if (--place.users > 0 || !residence_.offload_) return;
  // What the component computed is wanted, and work in flight may still read its weights.
  residence_.context_.synchronise();
  place.component->store->drop();
  place.placed = false;
}

}  // namespace tessera::pipelines
