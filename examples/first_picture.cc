#include "tessera/checkpoint/model_folder.h"
#include "tessera/pipelines/text_to_image.h"

int main() {
  tessera::Context context;
  auto folder = tessera::checkpoint::ModelFolder::open("models/demo");
  auto pipe = tessera::pipelines::load_pipeline(folder, context);
  auto result = pipe->generate({.prompt = {"a red apple"}, .seeds = {7}});
  tessera::image::write_png("apple.png", result.images[0]);
}
