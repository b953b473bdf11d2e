package engine

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
)

// checkText refuses text that is too long or that PostgreSQL cannot store. A text that it misses is
// refused by the lane, which cannot name the field.
func checkText(field, text string, limit int) error {
	if len(text) > limit {
		return fault.New(fault.LimitExceeded, fmt.Sprintf("has %d bytes, the limit is %d", len(text), limit), fault.Field(field),
			fault.Remedy("use a shorter text"), fault.Value("limit", limit), fault.Value("current", len(text)))
	}
	if !utf8.ValidString(text) {
		return fault.New(fault.InvalidArgument, "is not valid UTF-8", fault.Field(field), fault.Remedy("send UTF-8 text"))
	}
	if strings.IndexByte(text, 0) >= 0 {
		return fault.New(fault.InvalidArgument, "contains a zero byte", fault.Field(field), fault.Remedy("remove it"))
	}
	return nil
}

// checkRetry refuses a policy that a manifest could not have. A zero field is not set.
func checkRetry(p run.RetryPolicy) error {
	r := asset.Retry{
		MaxAttempts: p.MaxAttempts, MaxDeaths: p.MaxDeaths, InitialDelay: asset.Duration(p.InitialDelay), MaxDelay: asset.Duration(p.MaxDelay), Multiplier: p.Multiplier,
		Jitter: p.Jitter, RetryOn: p.RetryOn, NoRetryOn: p.NoRetryOn, TimeoutGrowth: p.TimeoutGrowth,
	}
	return r.Check("retry")
}

// CheckIdempotencyKey refuses an invalid idempotency key.
func CheckIdempotencyKey(key string) error {
	message := ""
	switch {
	case key == "":
		message = "is empty"
	case len(key) > maxKeyLength:
		message = fmt.Sprintf("has %d bytes, the limit is %d", len(key), maxKeyLength)
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }):
		message = "has characters that are not printable ASCII"
	default:
		return nil
	}
	return fault.New(fault.InvalidArgument, message, fault.Field("idempotency_key"), fault.Remedy("use 1 to 255 letters, digits and signs, such as a UUID"))
}
