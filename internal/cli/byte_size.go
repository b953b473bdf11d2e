package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// byteSize is a flag with a number of bytes, such as 512MiB or 2GB.
type byteSize int64

var byteUnits = []struct { //nolint:gochecknoglobals // a table
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// Set parses a size.
func (b *byteSize) Set(text string) error {
	for _, unit := range byteUnits {
		number, found := strings.CutSuffix(text, unit.suffix)
		if !found {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || f <= 0 || f*unit.bytes > math.MaxInt64/2 {
			break
		}
		*b = byteSize(f * unit.bytes)
		return nil
	}
	return errors.New("takes a size with a unit such as 512MiB or 2GB, not " + strconv.Quote(text))
}

// String returns the size in bytes.
func (b *byteSize) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10) + "B"
}

// Type names the kind of value for the help.
func (*byteSize) Type() string { return "size" }
