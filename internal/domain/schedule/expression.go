package schedule

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// maxExpression bounds an expression, in bytes.
const maxExpression = 256

// everyPrefix begins an interval that is written as an expression.
const everyPrefix = "@every"

// descriptors are the names that stand for an expression.
var descriptors = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// The fields of an expression, in the parser's order.
const (
	second = iota
	minute
	hour
	dayOfMonth
	month
	dayOfWeek
	fieldCount
)

var fieldNames = [fieldCount]string{"second", "minute", "hour", "day of month", "month", "day of week"}

// The forms that an item of a list may have. The parser would take more than that: signs,
// `*-5`, `?/2`, empty items; each of them would mean something that its author did not.
var (
	itemStar     = regexp.MustCompile(`^\*(/[0-9]{1,4})?$`)
	itemRange    = regexp.MustCompile(`^([0-9]{1,4}|[A-Za-z]{3})(?:-([0-9]{1,4}|[A-Za-z]{3}))?(/[0-9]{1,4})?$`)
	itemMonthDay = regexp.MustCompile(`^(?i:L|L-[0-9]{1,2}|LW|[0-9]{1,2}W)$`)
	itemNth      = regexp.MustCompile(`^([0-7]|[A-Za-z]{3})#[0-9]$`)
	itemLast     = regexp.MustCompile(`^(?i:([0-7]|[a-z]{3})L)$`)
)

// fields is a cron expression, taken apart.
type fields struct {
	seconds, minutes, hours uint64
	months                  uint64
	days                    uint64 // of the month, bit 1 to 31
	weekdays                uint64 // bit 0 is Sunday
	dayRules                []cron.DomConstraint
	weekdayRules            []cron.DowConstraint
	eitherDay               bool // both kinds of days are restricted: one is enough
	real                    bool // follows real time, not the wall clock
	firstTime               int64
	perDay                  int
}

// parser reads fields. It is asked for nothing else: its search for the next time is not
// right about zones, and which days match is decided here.
func parser() cron.Parser {
	return cron.MustNewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Extended)
}

// parseExpression reads five or six fields, or a descriptor other than @every.
func parseExpression(text string) (*fields, error) {
	if len(text) > maxExpression {
		return nil, cronFault(fmt.Sprintf("longer than %d bytes", maxExpression))
	}
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		if zone, ok := strings.CutPrefix(text, prefix); ok {
			zone, _, _ = strings.Cut(zone, " ")
			return nil, cronFaultWith(prefix+" is not a part of an expression", fmt.Sprintf("remove it and set timezone to %.64s", cmp.Or(zone, "Europe/Berlin")))
		}
	}
	expression := text
	if strings.HasPrefix(text, "@") {
		known, ok := descriptors[text]
		if !ok {
			return nil, cronFault(fmt.Sprintf("unknown name %.64q%s", text, suggest.DidYouMean(text, descriptorNames())))
		}
		expression = known
	}
	parts := strings.FieldsFunc(expression, func(r rune) bool { return r == ' ' || r == '\t' })
	switch len(parts) {
	case fieldCount - 1:
		parts = append([]string{"0"}, parts...)
	case fieldCount:
	default:
		return nil, cronFault(fmt.Sprintf("5 fields are needed, or 6 with seconds, not %d", len(parts)))
	}
	rewritten := make([]string, fieldCount)
	for i, part := range parts {
		var err error
		if rewritten[i], err = checkField(i, part); err != nil {
			return nil, err
		}
	}
	parsed, err := parser().Parse(strings.Join(rewritten, " "))
	if err != nil {
		return nil, cronFault(fmt.Sprintf("%.64q is not understood", text)) // its own words are for programmers
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, cronFault("not an expression")
	}
	f := newFields(spec, parts)
	if f.seconds == 0 || f.minutes == 0 || f.hours == 0 || f.months == 0 {
		return nil, cronFault("a field that nothing matches")
	}
	f.firstTime, _ = f.timeFrom(0)
	f.perDay = f.timesBefore(secondsPerDay)
	return f, nil
}

func newFields(spec *cron.SpecSchedule, parts []string) *fields {
	const (
		sixty  = 1<<60 - 1
		day    = 1<<24 - 1
		year   = 1<<13 - 2
		dates  = 1<<32 - 2
		sunday = 1
		week   = 1<<7 - 1
	)
	return &fields{
		seconds: spec.Second & sixty, minutes: spec.Minute & sixty, hours: spec.Hour & day,
		months: spec.Month & year,
		days:   spec.Dom & dates, dayRules: spec.DomConstraints,
		weekdays: (spec.Dow | spec.Dow>>7&sunday) & week, weekdayRules: spec.DowConstraints,
		eitherDay: !unrestricted(parts[dayOfMonth]) && !unrestricted(parts[dayOfWeek]),
		real:      parts[minute][0] == '*' || parts[hour][0] == '*',
	}
}

// unrestricted says that a field of days leaves the choice to the other one.
func unrestricted(field string) bool { return field[0] == '*' || field == "?" }

func descriptorNames() []string {
	names := []string{everyPrefix}
	for name := range descriptors {
		names = append(names, name)
	}
	return names
}

// parseEvery reads "@every 90m"; ok says that the expression is one.
func parseEvery(text string) (interval time.Duration, ok bool, err error) {
	rest, ok := strings.CutPrefix(text, everyPrefix)
	if !ok || len(text) > maxExpression {
		return 0, false, nil
	}
	interval, err = time.ParseDuration(strings.TrimSpace(rest))
	if err != nil || (rest != "" && rest[0] != ' ') {
		return 0, true, fault.New(fault.InvalidArgument, fmt.Sprintf("%.64q is not a duration", strings.TrimSpace(rest)),
			fault.Field("trigger.cron"), fault.Remedy("write @every 90m, or @every 1h30m"))
	}
	return interval, true, checkInterval("trigger.cron", "@every 15m", interval)
}

// cronFault is about an expression.
func cronFault(reason string) error {
	return cronFaultWith(reason, "minute, hour, day of month, month and day of week: 30 2 * * 1-5 is 02:30 from Monday to Friday")
}

func cronFaultWith(reason, remedy string) error {
	return fault.New(fault.InvalidArgument, reason, fault.Field("trigger.cron"), fault.Remedy(remedy))
}
