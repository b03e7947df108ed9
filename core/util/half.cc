#include "util/half.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "livegnn/cpu.h"
#include "util/half_impl.h"

namespace livegnn {

#ifdef LIVEGNN_X86
extern const HalfCodec kHalfAvx2;
extern const HalfCodec kHalfAvx512;
#endif

namespace {
void decode_one(float* out, const std::uint16_t* in) { *out = float16_to_float32(*in); }
void encode_one(std::uint16_t* out, const float* in) { *out = float32_to_float16(*in); }

constexpr HalfCodec kHalfGeneric{"generic", decode_float16<1, decode_one>, encode_float16<1, encode_one>,
                                 bfloat16_to_float32, float32_to_bfloat16};
}  // namespace

const HalfCodec* half_codec_named(const char* name) {
#ifdef LIVEGNN_X86
  const std::initializer_list<const HalfCodec*> codecs = {&kHalfAvx512, &kHalfAvx2, &kHalfGeneric};
#else
  const std::initializer_list<const HalfCodec*> codecs = {&kHalfGeneric};
#endif
  for (const HalfCodec* codec : codecs) {
    if (std::strcmp(codec->name, name) == 0 && cpu_runs(name)) return codec;
  }
  return nullptr;
}

const HalfCodec& half_codec() {
  static const HalfCodec& chosen = []() -> const HalfCodec& {
    const char* wanted = std::getenv("LIVEGNN_KERNELS");  // a name that is none is refused by kernels()
    for (const char* name : {wanted == nullptr ? "avx512" : wanted, "avx512", "avx2"}) {
      if (const HalfCodec* found = half_codec_named(name)) return *found;
    }
    return kHalfGeneric;
  }();
  return chosen;
}

}  // namespace livegnn
