package schedule

import (
	"archive/zip"
	"crypto/sha256"
	_ "embed" // the zone data
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// tzRelease is the IANA release of the archive.
const tzRelease = "2025c"

// tzArchive is the only source of zones: with the data of the machine or of $ZONEINFO, two replicas
// could compute different slots.
//
//go:embed tz/zoneinfo.zip
var tzArchive string

// zone is one parsed time zone.
type zone struct {
	offsets
	name     string
	location *time.Location
}

// zones has all zones. Each is parsed at its first use, because parsing all of them takes too long.
var zones = sync.OnceValue(func() map[string]func() (*zone, error) {
	archive, err := zip.NewReader(strings.NewReader(tzArchive), int64(len(tzArchive)))
	if err != nil {
		return nil // a test reads all of them
	}
	all := make(map[string]func() (*zone, error), len(archive.File))
	for _, file := range archive.File {
		all[file.Name] = sync.OnceValues(func() (*zone, error) { return readZone(file) })
	}
	return all
})

func readZone(file *zip.File) (*zone, error) {
	content, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	data, err := io.ReadAll(content)
	if err != nil {
		return nil, err
	}
	z := &zone{name: file.Name}
	if z.offsets, err = parseTZif(string(data)); err != nil {
		return nil, err
	}
	z.location, err = time.LoadLocationFromTZData(file.Name, data)
	return z, err
}

func findZone(name string) (*zone, error) {
	load, ok := zones()[name]
	if !ok {
		if name == "" {
			return nil, fault.Invalid("timezone", "is missing", "use UTC, or a name such as Europe/Berlin")
		}
		return nil, fault.Invalid("timezone", fmt.Sprintf("unknown time zone %.64q%s", name, suggest.DidYouMean(name, Zones())), "use a name of the IANA database, such as UTC or Europe/Berlin")
	}
	z, err := load()
	if err != nil {
		return nil, fmt.Errorf("read zone %s: %w", name, err)
	}
	return z, nil
}

// Zones returns the names of all time zones, sorted.
func Zones() []string { return slices.Sorted(maps.Keys(zones())) }

// Location returns a zone from the embedded data, to show slots in local time.
func Location(name string) (*time.Location, error) {
	z, err := findZone(name)
	if err != nil {
		return nil, err
	}
	return z.location, nil
}

// TZVersion returns the version of the embedded zone data: its IANA release, and the beginning of the
// archive's SHA-256. The hash is computed from the binary, so two versions are equal if and only if the
// data is.
func TZVersion() string { return tzVersion() }

var tzVersion = sync.OnceValue(func() string {
	sum := sha256.Sum256([]byte(tzArchive))
	return tzRelease + "-" + hex.EncodeToString(sum[:6])
})

// forever bounds segments without a change.
const forever = math.MaxInt64 / 4

// segment is a stretch of time with one offset: from is in it, until is not.
type segment struct{ from, until, offset int64 }

// segment returns the segment of an instant.
func (z *offsets) segment(instant int64) segment {
	shift := int64(0)
	if instant >= cycleEnd {
		shift = (instant - cycleStart) / cycle * cycle
		instant -= shift
	}
	i := sort.Search(len(z.at), func(i int) bool { return z.at[i] > instant })
	s := segment{from: -forever, until: forever, offset: z.initial}
	if i > 0 {
		s.from, s.offset = z.at[i-1]+shift, z.offset[i-1]
	}
	if i < len(z.at) {
		s.until = z.at[i] + shift
	}
	return s
}

// Transition is a change of a zone's offset.
type Transition struct {
	At     time.Time     // the first instant with the new offset
	Before time.Duration // east of Greenwich
	After  time.Duration
}

// Gap reports whether the clock went forward, so that the local times between do not exist. Otherwise
// it went back, which is a fold: they exist twice.
func (t Transition) Gap() bool { return t.After > t.Before }

// Transitions returns the changes of a zone's offset in (from, until], oldest first, within the years
// of slots. An unknown zone has none.
func Transitions(zone string, from, until time.Time) []Transition {
	z, err := findZone(zone)
	if err != nil {
		return nil
	}
	var all []Transition
	end := min(until.Unix(), lastSlot)
	for s := z.segment(max(from.Unix(), firstSlot)); s.until <= end; {
		next := z.segment(s.until)
		all = append(all, Transition{
			At:     time.Unix(s.until, 0).UTC(),
			Before: time.Duration(s.offset) * time.Second,
			After:  time.Duration(next.offset) * time.Second,
		})
		s = next
	}
	return all
}

// Zone is a time zone of the embedded data.
type Zone struct{ zone *zone }

// FindZone returns a zone by its IANA name.
func FindZone(name string) (Zone, error) {
	z, err := findZone(name)
	return Zone{z}, err
}

// Name returns the IANA name.
func (z Zone) Name() string { return z.zone.name }

// Offset returns the offset from UTC at an instant, and the instant until which it holds. All are in
// seconds, since 1970 or east of Greenwich.
func (z Zone) Offset(instant int64) (offset, until int64) {
	s := z.zone.segment(instant)
	return s.offset, s.until
}
