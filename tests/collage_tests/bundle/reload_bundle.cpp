// Load one folder again after other bundles were put there, and keep all that was loaded.
#include <collage/bundle.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

int main(int argc, char** words) {
  std::vector<std::unique_ptr<collage::Bundle>> kept;
  for (int i = 2; i < argc; ++i) {
    std::filesystem::remove_all(words[1]);
    std::filesystem::copy(words[i], words[1], std::filesystem::copy_options::recursive);
    kept.push_back(std::make_unique<collage::Bundle>(words[1]));
    collage::Tensor x = collage::empty(kept.back()->inputs()[0]);
    *static_cast<float*>(x.data_ptr()) = 1;
    collage::Context context = kept.back()->context();
    std::printf("%g\n", *static_cast<float*>(context.run({x})[0].data_ptr()));
  }
}
