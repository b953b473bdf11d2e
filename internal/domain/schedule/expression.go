package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// maxExpression is the maximum length of an expression in bytes.
const maxExpression = 256

// everyPrefix begins an interval that is written as an expression.
const everyPrefix = "@every"

// descriptors maps each @-name to its expression.
var descriptors = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// fields is a parsed cron expression. Each set has a bit for each value.
type fields struct {
	seconds, minutes, hours uint64
	months                  uint64
	days                    uint64 // of the month, bits 1 to 31
	weekdays                uint64 // bit 0 is Sunday
	dayRules                []dayRule
	weekdayRules            []dayRule
	eitherDay               bool // both day fields are restricted: a day matches if one of them does
	real                    bool // follows real time, not the wall clock
	firstTime               int64
	perDay                  int
}

// parseExpression parses five or six fields, or a descriptor other than @every.
func parseExpression(text string) (*fields, error) {
	if len(text) > maxExpression {
		return nil, cronFault(fmt.Sprintf("expression is longer than %d bytes", maxExpression))
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
			names := append(slices.Collect(maps.Keys(descriptors)), everyPrefix)
			return nil, cronFault(fmt.Sprintf("unknown name %.64q%s", text, suggest.DidYouMean(text, names)))
		}
		expression = known
	}
	parts := strings.FieldsFunc(expression, func(r rune) bool { return r == ' ' || r == '\t' })
	switch len(parts) {
	case fieldCount - 1:
		parts = append([]string{"0"}, parts...)
	case fieldCount:
	default:
		return nil, cronFault(fmt.Sprintf("expected 5 fields, or 6 with seconds, found %d", len(parts)))
	}
	var sets [fieldCount]uint64
	var rules [fieldCount][]dayRule
	for i, part := range parts {
		var err error
		if sets[i], rules[i], err = parseField(i, part); err != nil {
			return nil, err
		}
	}
	const sunday = 1 // is bit 0 and bit 7 of the parsed set
	f := &fields{
		seconds: sets[second], minutes: sets[minute], hours: sets[hour], months: sets[month],
		days: sets[dayOfMonth], dayRules: rules[dayOfMonth],
		weekdays: sets[dayOfWeek] | sets[dayOfWeek]>>7&sunday, weekdayRules: rules[dayOfWeek],
		eitherDay: !unrestricted(parts[dayOfMonth]) && !unrestricted(parts[dayOfWeek]),
		real:      parts[minute][0] == '*' || parts[hour][0] == '*',
	}
	f.firstTime, _ = f.timeFrom(0)
	f.perDay = f.timesBefore(secondsPerDay)
	return f, nil
}

// unrestricted reports whether a day field leaves the choice of days to the other day field.
func unrestricted(field string) bool { return field[0] == '*' || field == "?" }

// parseEvery parses "@every 90m"; ok reports whether the expression begins with @every.
func parseEvery(text string) (interval time.Duration, ok bool, err error) {
	rest, ok := strings.CutPrefix(text, everyPrefix)
	if !ok || len(text) > maxExpression {
		return 0, false, nil
	}
	interval, err = time.ParseDuration(strings.TrimSpace(rest))
	if err != nil || (rest != "" && rest[0] != ' ') {
		return 0, true, cronFaultWith(fmt.Sprintf("%.64q is not a duration", strings.TrimSpace(rest)), "write @every 90m, or @every 1h30m")
	}
	return interval, true, checkInterval("trigger.cron", "@every 15m", interval)
}

// cronFault reports an invalid expression, with an example of a valid one.
func cronFault(reason string) error {
	return cronFaultWith(reason, "write minute, hour, day of month, month and day of week: 30 2 * * 1-5 is 02:30 from Monday to Friday")
}

func cronFaultWith(reason, remedy string) error {
	return fault.Invalid("trigger.cron", reason, remedy)
}
