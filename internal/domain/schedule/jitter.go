package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"
)

// Jitter returns a config's offset in [0, window), in whole microseconds. It is a hash of the id, so it
// is the same on every replica and after every restart, and configs with the same slot spread evenly.
func Jitter(config [16]byte, window time.Duration) time.Duration {
	if window <= 0 {
		return 0
	}
	sum := sha256.Sum256(config[:])
	steps := uint64(window / time.Microsecond)
	offset, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), steps)
	return time.Duration(offset) * time.Microsecond //nolint:gosec // less than the window
}
