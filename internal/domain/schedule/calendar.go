package schedule

import (
	"math/bits"
	"time"
)

// The calendar has no zones: its times are readings of a local clock that never jumps, in seconds since
// the reading 1970-01-01 00:00:00.

// monthDays has the matching days of one month. It is kept from one search to the next, because the
// next result is mostly in the same month.
type monthDays struct {
	year, month int
	first       int64 // the number of its first day
	length      int64
	days        uint32 // bit 0 is the first
	loads       int    // how many months were computed, for the tests that bound the work
}

func (p *monthDays) has(day int64) bool { return day >= p.first && day < p.first+p.length }

// load computes the matching days of a month.
func (f *fields) load(p *monthDays, year, month int) {
	first := time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC)
	p.year, p.month = year, month
	p.first = first.Unix() / secondsPerDay
	p.length = int64(daysIn(year, month))
	p.days = f.matchingDays(int(first.Weekday()), int(p.length), month)
	p.loads++
}

// loadDay computes the month of a day, unless p has it.
func (f *fields) loadDay(p *monthDays, day int64) {
	if !p.has(day) || p.length == 0 {
		year, month, _ := time.Unix(day*secondsPerDay, 0).UTC().Date()
		f.load(p, year, int(month))
	}
}

// loadNext computes the next month that the expression permits.
func (f *fields) loadNext(p *monthDays) {
	year, month := p.year, p.month
	later := f.months >> (month + 1) << (month + 1)
	if later == 0 {
		year, later = year+1, f.months
	}
	f.load(p, year, bits.TrailingZeros64(later))
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	default:
		return 31
	}
}

// matchingDays returns the matching days of a month that begins on a weekday. Bit 0 is the first.
func (f *fields) matchingDays(weekday, length, month int) uint32 {
	if f.months>>month&1 == 0 {
		return 0
	}
	all := uint32(1)<<length - 1
	byDate := uint32(f.days>>1) | daysOf(f.dayRules, weekday, length) //nolint:gosec // 31 bits
	byWeekday := daysOf(f.weekdayRules, weekday, length)
	for first := range 7 { // the first seven days, and all with the same weekday
		if f.weekdays>>((weekday+first)%7)&1 == 1 {
			byWeekday |= 0x10204081 << first
		}
	}
	if f.eitherDay {
		return (byDate | byWeekday) & all
	}
	return byDate & byWeekday & all
}

// daysOf returns the days that the rules select. Bit 0 is the first day of the month.
func daysOf(rules []dayRule, weekday, length int) (days uint32) {
	for _, rule := range rules {
		if day := rule(weekday, length); day >= 0 {
			days |= 1 << day
		}
	}
	return days
}

// next returns the first matching reading between from and limit, both included.
func (f *fields) next(p *monthDays, from, limit int64) (int64, bool) {
	day := floorDays(from)
	f.loadDay(p, day)
	if p.days>>(day-p.first)&1 == 1 {
		if t, ok := f.timeFrom(from - day*secondsPerDay); ok {
			reading := day*secondsPerDay + t
			return reading, reading <= limit
		}
	}
	day++
	for {
		if p.has(day) {
			if rest := p.days >> (day - p.first); rest != 0 {
				reading := (day+int64(bits.TrailingZeros32(rest)))*secondsPerDay + f.firstTime
				return reading, reading <= limit
			}
		}
		if f.loadNext(p); p.first*secondsPerDay > limit {
			return 0, false
		}
		day = p.first
	}
}

// timeFrom returns the first matching time of a day, in seconds, from "from" on.
func (f *fields) timeFrom(from int64) (int64, bool) {
	h, m, s := from/3600, from/60%60, from%60
	if f.hours>>h&1 == 1 {
		if f.minutes>>m&1 == 1 {
			if rest := f.seconds >> s; rest != 0 {
				return from + int64(bits.TrailingZeros64(rest)), true
			}
		}
		if rest := f.minutes >> (m + 1); rest != 0 {
			m += 1 + int64(bits.TrailingZeros64(rest))
			return h*3600 + m*60 + int64(bits.TrailingZeros64(f.seconds)), true
		}
	}
	rest := f.hours >> (h + 1)
	if rest == 0 {
		return 0, false
	}
	h += 1 + int64(bits.TrailingZeros64(rest))
	return h*3600 + int64(bits.TrailingZeros64(f.minutes))*60 + int64(bits.TrailingZeros64(f.seconds)), true
}

// count returns how many readings match between from and to, both included, without enumerating
// them.
func (f *fields) count(p *monthDays, from, to int64) int {
	if from > to {
		return 0
	}
	n := f.countBefore(p, to+1) - f.countBefore(p, from)
	first, last := floorDays(from), floorDays(to+1)
	if first == last {
		return n
	}
	for f.loadDay(p, first); p.first < last; f.loadNext(p) {
		days := p.days
		if p.first < first {
			days = days >> (first - p.first) << (first - p.first)
		}
		if end := last - p.first; end < p.length {
			days &= 1<<end - 1
		}
		n += bits.OnesCount32(days) * f.perDay
	}
	return n
}

// countBefore returns how many readings match on the day of a reading and before it.
func (f *fields) countBefore(p *monthDays, reading int64) int {
	day := floorDays(reading)
	f.loadDay(p, day)
	if p.days>>(day-p.first)&1 == 0 {
		return 0
	}
	return f.timesBefore(reading - day*secondsPerDay)
}

// timesBefore returns how many times of a day match before one.
func (f *fields) timesBefore(t int64) int {
	h, m, s := t/3600, t/60%60, t%60
	below := func(set uint64, n int64) int { return bits.OnesCount64(set & (1<<n - 1)) }
	seconds := bits.OnesCount64(f.seconds)
	n := below(f.hours, h) * bits.OnesCount64(f.minutes) * seconds
	if f.hours>>h&1 == 1 {
		n += below(f.minutes, m) * seconds
		if f.minutes>>m&1 == 1 {
			n += below(f.seconds, s)
		}
	}
	return n
}

// floorDays returns the day of a reading, also before 1970.
func floorDays(reading int64) int64 {
	day := reading / secondsPerDay
	if reading%secondsPerDay < 0 {
		day--
	}
	return day
}
