package web

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// filters are the filters of a list. A value that a filter does not know is an error on the page: a list
// that ignored it would show what the visitor did not ask for.
type filters struct {
	v       *visit
	Invalid string
}

// one is the value of a filter among the known ones, in upper or lower case; "" is any.
func (f *filters) one(name string, known ...string) string {
	value := f.v.query(name)
	if value == "" {
		return ""
	}
	if at := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, value) }); at >= 0 {
		return known[at]
	}
	f.Invalid = "Filter " + name + ": unknown value " + strconv.Quote(view.Clip(value, 60)) + ". Use one of " + strings.Join(known, ", ") + "."
	return ""
}

// runStates and taskStates are the values of filters by state.
func runStates() []string {
	return []string{"UNFINISHED", "TROUBLE", "PENDING", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELLED"}
}

func taskStates() []string {
	return []string{"PENDING", "READY", "QUEUED", "DISPATCHED", "RUNNING", "RETRY_WAIT", "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"}
}

// periods are the values of filters by age.
func periods() []string { return []string{"1h", "24h", "7d", "30d"} }

// mustMay refuses a page whose form the API would refuse.
func (v *visit) mustMay(p access.Permission) error {
	if v.may(p) {
		return nil
	}
	return fault.New(fault.Forbidden, "this page needs the permission "+string(p), fault.Remedy("ask an administrator of the tenant for a key with a stronger role"))
}

// milliseconds is a time in the address.
func (v *visit) milliseconds(name string) time.Time {
	n, err := strconv.ParseInt(v.query(name), 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(n)
}
