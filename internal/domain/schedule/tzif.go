package schedule

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The Gregorian calendar repeats after 400 years, weekdays included, and so do the rules of zones after
// the last listed change. Changes are therefore computed up to the end of one such cycle, and later
// instants are shifted back into it.
const (
	secondsPerDay = 24 * 60 * 60
	cycle         = 146_097 * secondsPerDay
	cycleStart    = 4_102_444_800      // 2100-01-01
	cycleEnd      = cycleStart + cycle // 2500-01-01
	cycleEndYear  = 2500
	// Changes before 1969 affect no slot; the offset after them does.
	firstKept = -365 * secondsPerDay
)

var errZoneFile = errors.New("not a time zone file")

// offsets is a zone as a list of changes: offset[i] applies from at[i] on, initial before all of them.
// Changes of the name only are left out.
type offsets struct {
	initial int64
	at      []int64
	offset  []int64
}

// parseTZif parses a compiled zone (RFC 8536, version 2 or later) and computes its changes until the
// end of the cycle.
func parseTZif(data string) (offsets, error) {
	const headerSize = 44
	var z offsets
	skip, err := zoneHeader(data)
	if err != nil {
		return z, err
	}
	first := headerSize + skip.size(4)
	if first < 0 || first > len(data) {
		return z, errZoneFile
	}
	data = data[first:]
	counts, err := zoneHeader(data)
	if err != nil {
		return z, err
	}
	body := data[headerSize:]
	if size := counts.size(8); size < 0 || size >= len(body) || counts.types == 0 {
		return z, errZoneFile
	}
	footer := body[counts.size(8):]
	listed, err := z.readChanges([]byte(body), counts)
	if err != nil {
		return z, err
	}
	rule, ok := strings.CutPrefix(footer, "\n")
	if !ok {
		return z, errZoneFile
	}
	rule, _, ok = strings.Cut(rule, "\n")
	if !ok {
		return z, errZoneFile
	}
	return z, z.extend(rule, listed)
}

// zoneCounts are the sizes in a header.
type zoneCounts struct{ ut, std, leaps, times, types, chars int }

// size returns the length of the block that follows, with times of a number of bytes.
func (c zoneCounts) size(width int) int {
	return c.times*width + c.times + c.types*6 + c.chars + c.leaps*(width+4) + c.std + c.ut
}

func zoneHeader(data string) (zoneCounts, error) {
	if len(data) < 44 || data[:4] != "TZif" || data[4] < '2' {
		return zoneCounts{}, errZoneFile
	}
	var counts [6]int
	for i := range counts {
		n := binary.BigEndian.Uint32([]byte(data[20+4*i:]))
		if n > 1<<16 {
			return zoneCounts{}, errZoneFile
		}
		counts[i] = int(n)
	}
	return zoneCounts{counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]}, nil
}

// readChanges reads the listed changes and returns the time of the last one, which may change only the
// name.
func (z *offsets) readChanges(body []byte, counts zoneCounts) (listed int64, err error) {
	times, kinds := body[:counts.times*8], body[counts.times*8:][:counts.times]
	types := body[counts.times*9:][:counts.types*6]
	offsetOf := func(kind byte) (int64, bool) {
		if int(kind) >= counts.types {
			return 0, false
		}
		return int64(int32(binary.BigEndian.Uint32(types[int(kind)*6:]))), true //nolint:gosec // two's complement is the format
	}
	z.initial, _ = offsetOf(0)
	listed = firstKept
	for i, kind := range kinds {
		at := int64(binary.BigEndian.Uint64(times[8*i:])) //nolint:gosec // two's complement is the format
		offset, ok := offsetOf(kind)
		if !ok || at >= cycleStart {
			return 0, errZoneFile
		}
		listed = max(listed, at)
		if at < firstKept {
			z.initial = offset
			continue
		}
		z.add(at, offset)
	}
	return listed, nil
}

// add appends a change, unless the offset stays the same.
func (z *offsets) add(at, offset int64) {
	if offset != z.latest() {
		z.at, z.offset = append(z.at, at), append(z.offset, offset)
	}
}

// latest returns the offset after all changes so far.
func (z *offsets) latest() int64 {
	if n := len(z.offset); n > 0 {
		return z.offset[n-1]
	}
	return z.initial
}

// extend computes the changes by the rule that applies after the last listed change.
func (z *offsets) extend(text string, listed int64) error {
	if text == "" {
		return nil
	}
	rule, err := parseRule(text)
	if err != nil {
		return err
	}
	if !rule.changes {
		if z.latest() != rule.standard {
			return errZoneFile
		}
		return nil
	}
	for year := time.Unix(listed, 0).UTC().Year(); year <= cycleEndYear+1; year++ {
		toSummer := rule.start.in(year) - rule.standard
		toWinter := rule.end.in(year) - rule.summer
		changes := []struct{ at, offset int64 }{{toSummer, rule.summer}, {toWinter, rule.standard}}
		if toWinter < toSummer {
			slices.Reverse(changes)
		}
		for _, change := range changes {
			if change.at > listed {
				z.add(change.at, change.offset)
			}
		}
	}
	return nil
}

// rule is a POSIX TZ string: two offsets and when they alternate.
type rule struct {
	standard, summer int64
	changes          bool
	start, end       yearday
}

// yearday is a moment of every year, in seconds of the local clock before the change.
type yearday struct {
	kind             byte // 'M' month, week and weekday; 'J' day 1 to 365, never 29 February; 0 day 0 to 365
	month, week, day int
	seconds          int64
}

// in returns the moment in a year, as if the local clock were UTC.
func (d yearday) in(year int) int64 {
	first := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
	var day time.Time
	switch d.kind {
	case 'M':
		first = time.Date(year, time.Month(d.month), 1, 0, 0, 0, 0, time.UTC)
		ahead := (d.day - int(first.Weekday()) + 7) % 7
		day = first.AddDate(0, 0, ahead+7*(d.week-1))
		for day.Month() != first.Month() { // the fifth one is the last one
			day = day.AddDate(0, 0, -7)
		}
	case 'J':
		day = time.Date(2001, 1, d.day, 0, 0, 0, 0, time.UTC) // 2001 has no 29 February
		day = time.Date(year, day.Month(), day.Day(), 0, 0, 0, 0, time.UTC)
	default:
		day = first.AddDate(0, 0, d.day)
	}
	return day.Unix() + d.seconds
}

// parseRule parses a string such as CET-1CEST,M3.5.0,M10.5.0/3.
func parseRule(text string) (rule, error) {
	r := reader{rest: text}
	var z rule
	r.name()
	z.standard = -r.clock()
	if r.rest == "" {
		return z, r.err()
	}
	r.name()
	z.changes, z.summer = true, z.standard+60*60
	if r.rest != "" && r.rest[0] != ',' {
		z.summer = -r.clock()
	}
	z.start, z.end = r.yearday(), r.yearday()
	if r.rest != "" {
		r.failed = true
	}
	return z, r.err()
}

// reader parses a rule. After the first error it stays failed.
type reader struct {
	rest   string
	failed bool
}

func (r *reader) err() error {
	if r.failed {
		return errZoneFile
	}
	return nil
}

// take removes a prefix and reports whether the text had it.
func (r *reader) take(prefix string) bool {
	rest, ok := strings.CutPrefix(r.rest, prefix)
	r.rest = rest
	return ok
}

// name skips the name of an offset: letters, or anything in angle brackets.
func (r *reader) name() {
	if r.take("<") {
		_, rest, ok := strings.Cut(r.rest, ">")
		r.rest, r.failed = rest, r.failed || !ok
		return
	}
	n := bytes.IndexFunc([]byte(r.rest), func(c rune) bool { return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') })
	if n < 0 {
		n = len(r.rest)
	}
	r.failed = r.failed || n == 0
	r.rest = r.rest[n:]
}

func (r *reader) number() int {
	n := 0
	for n < len(r.rest) && r.rest[n] >= '0' && r.rest[n] <= '9' {
		n++
	}
	value, err := strconv.Atoi(r.rest[:n])
	if err != nil || value > 366 {
		r.failed = true
		return 0
	}
	r.rest = r.rest[n:]
	return value
}

// clock parses [+-]hh[:mm[:ss]].
func (r *reader) clock() int64 {
	sign := int64(1)
	if r.take("-") {
		sign = -1
	} else {
		r.take("+")
	}
	seconds := int64(r.number()) * 60 * 60
	if r.take(":") {
		seconds += int64(r.number()) * 60
		if r.take(":") {
			seconds += int64(r.number())
		}
	}
	return sign * seconds
}

// yearday parses ,M3.5.0/2 or ,J60 or ,59/26.
func (r *reader) yearday() yearday {
	d := yearday{seconds: 2 * 60 * 60}
	r.failed = r.failed || !r.take(",")
	switch {
	case r.take("M"):
		d.kind, d.month = 'M', r.number()
		r.failed = r.failed || !r.take(".")
		d.week = r.number()
		r.failed = r.failed || !r.take(".")
		d.day = r.number()
		r.failed = r.failed || d.month < 1 || d.month > 12 || d.week < 1 || d.week > 5 || d.day > 6
	case r.take("J"):
		d.kind, d.day = 'J', r.number()
		r.failed = r.failed || d.day < 1 || d.day > 365
	default:
		d.day = r.number()
	}
	if r.take("/") {
		d.seconds = r.clock()
	}
	return d
}
