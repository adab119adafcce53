package plantroom

import "image"

// random is xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators,
// scrambled", 2014): a few machine instructions per 64 bits, and the same bits on every platform.
type random uint64

// newRandom accepts every seed; the generator's own state must never be zero.
func newRandom(seed uint64) *random {
	r := random(mix(seed, 0) | 1)
	return &r
}

func (r *random) next() uint64 {
	x := uint64(*r)
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	*r = random(x)
	return x * 0x2545F4914F6CDD1D
}

// between returns a number in [low, high].
func (r *random) between(low, high int) int {
	return low + int((r.next()>>33)%uint64(high-low+1))
}

// mix derives the n-th independent seed from seed (the finalizer of SplitMix64).
func mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// expose adds sensor noise to a rendered image. It is what makes a JPEG of this scene as large as
// one from a camera: a clean rendering would compress to a tenth. strength is the luma noise of a
// dark area in 1/16 of a level (standard deviation); brighter areas get more, as photon noise does.
func expose(img *image.YCbCr, strength int, r *random) {
	var luma, chroma [256]int
	for level := range luma {
		luma[level] = strength * (128 + level) / 128
		chroma[level] = strength / 2
	}
	addNoise(img.Y, &luma, r)
	addNoise(img.Cb, &chroma, r)
	addNoise(img.Cr, &chroma, r)
}

// gaussian holds roughly Gaussian values with standard deviation 64. Drawing from a table takes 12
// random bits a pixel; summing bytes for each pixel would cost more than encoding the JPEG.
var gaussian = gaussianTable(newRandom(0))

func gaussianTable(r *random) (table [1 << 12]int16) {
	for i := range table {
		bits, sum := r.next(), 0
		for shift := 0; shift < 64; shift += 8 {
			sum += int(bits >> shift & 0xff)
		}
		table[i] = int16((sum - 8*255/2) * 64 / 209) // eight uniform bytes deviate by 209
	}
	return table
}

func addNoise(plane []uint8, gain *[256]int, r *random) {
	for len(plane) > 0 {
		bits := r.next()
		block := plane[:min(4, len(plane))]
		for i, level := range block {
			n := int(gaussian[bits&(1<<12-1)]) * gain[level] >> 10 // 64 of the table times 16 of strength
			block[i] = clamp(int(level) + n)
			bits >>= 16
		}
		plane = plane[len(block):]
	}
}

func clamp(v int) uint8 {
	return uint8(max(0, min(255, v)))
}
