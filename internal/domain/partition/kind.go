package partition

import (
	"fmt"
	"strconv"
	"time"
)

// Kind is how a dimension is divided.
type Kind string

// The kinds. The first four are divisions of time, from fine to coarse.
const (
	Hourly  Kind = "hourly"
	Daily   Kind = "daily"
	Weekly  Kind = "weekly"
	Monthly Kind = "monthly"
	Static  Kind = "static"
	Dynamic Kind = "dynamic"
)

// Kinds are the names of all kinds, for messages.
const Kinds = "hourly, daily, weekly, monthly, static, dynamic"

// Time reports whether the kind divides time.
func (k Kind) Time() bool { return k == Hourly || k == Daily || k == Weekly || k == Monthly }

func (k Kind) valid() bool { return k.Time() || k == Static || k == Dynamic }

// example is a value of the kind, for remedies.
func (k Kind) example() string {
	switch k {
	case Hourly:
		return "2026-01-01T05Z"
	case Weekly:
		return "2026-W01"
	case Monthly:
		return "2026-01"
	case Daily, Static, Dynamic:
	}
	return "2026-01-01"
}

// unit is the word of a window over the kind: last 7 days.
func (k Kind) unit() string {
	switch k {
	case Hourly:
		return "hours"
	case Daily:
		return "days"
	case Weekly:
		return "weeks"
	case Monthly:
		return "months"
	case Static, Dynamic:
	}
	return ""
}

const (
	secondsPerHour = 3600
	secondsPerDay  = 24 * secondsPerHour
	// firstMonday is the day of the Monday with which 1970-W01 begins.
	firstMonday = -3

	// Partitions of time are within these years.
	firstYear, lastYear = 1900, 2199
)

// dayOf returns the number of a date, 0 for 1970-01-01.
func dayOf(year int, month time.Month, day int) int64 {
	return floor(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix(), secondsPerDay)
}

func dateOf(day int64) time.Time { return time.Unix(day*secondsPerDay, 0).UTC() }

// floor divides and rounds down, also below zero.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// firstDay returns the day with which a partition of a kind begins; hours have none.
func (k Kind) firstDay(ordinal int64) int64 {
	switch k {
	case Weekly:
		return ordinal*7 + firstMonday
	case Monthly:
		return dayOf(1970, time.January+time.Month(ordinal), 1)
	case Hourly, Daily, Static, Dynamic:
	}
	return ordinal
}

// ofDay returns the partition of a kind that contains a day.
func (k Kind) ofDay(day int64) int64 {
	switch k {
	case Weekly:
		return floor(day-firstMonday, 7)
	case Monthly:
		date := dateOf(day)
		return int64(date.Year()-1970)*12 + int64(date.Month()) - 1
	case Hourly, Daily, Static, Dynamic:
	}
	return day
}

// limits are the first and the last ordinal of a kind.
func (k Kind) limits() Range {
	first, last := dayOf(firstYear, time.January, 1), dayOf(lastYear, time.December, 31)
	if k == Hourly {
		return Range{first * 24, last*24 + 23}
	}
	r := Range{k.ofDay(first), k.ofDay(last)}
	if k == Weekly { // weeks that begin in these years
		r.First++
	}
	return r
}

// spell returns the value of an ordinal.
func (k Kind) spell(ordinal int64) string {
	switch k {
	case Hourly:
		return time.Unix(ordinal*secondsPerHour, 0).UTC().Format("2006-01-02T15Z")
	case Weekly:
		year, week := dateOf(k.firstDay(ordinal)).ISOWeek()
		return fmt.Sprintf("%04d-W%02d", year, week)
	case Monthly:
		return dateOf(k.firstDay(ordinal)).Format("2006-01")
	case Daily, Static, Dynamic:
	}
	return dateOf(ordinal).Format(time.DateOnly)
}

// readTime reads a value of time. Its spelling determines its kind.
func readTime(text string) (Kind, int64, bool) {
	var (
		kind    Kind
		ordinal int64
	)
	switch {
	case len(text) == len("2026-W01") && text[4:6] == "-W":
		year, err := strconv.Atoi(text[:4])
		week, err2 := strconv.Atoi(text[6:])
		if err != nil || err2 != nil {
			return "", 0, false
		}
		kind = Weekly
		// The fourth of January is in the first week of every year.
		ordinal = kind.ofDay(dayOf(year, time.January, 4)) + int64(week) - 1
	default:
		found := false
		for _, form := range []struct {
			kind   Kind
			layout string
		}{{Daily, time.DateOnly}, {Monthly, "2006-01"}, {Hourly, "2006-01-02T15Z"}} {
			at, err := time.Parse(form.layout, text)
			if err != nil {
				continue
			}
			kind, found = form.kind, true
			if ordinal = kind.ofDay(floor(at.Unix(), secondsPerDay)); kind == Hourly {
				ordinal = floor(at.Unix(), secondsPerHour)
			}
		}
		if !found {
			return "", 0, false
		}
	}
	// One partition has one spelling: no 2026-W00, no 2026-W53 that is 2027-W01.
	if kind.spell(ordinal) != text || !kind.limits().Contains(ordinal) {
		return "", 0, false
	}
	return kind, ordinal, true
}
