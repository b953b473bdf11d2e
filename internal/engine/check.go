package engine

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/run"
)

// checkText refuses text that is too long or that PostgreSQL cannot keep. What it lets
// through by mistake is found by the lane, which cannot say which field it was.
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

// Limits of the retry policy of a trigger: those of a manifest.
const (
	maxRetryAttempts   = 100
	maxInitialDelay    = 24 * time.Hour
	maxRetryDelay      = 7 * 24 * time.Hour
	maxRetryMultiplier = 100
	maxTimeoutGrowth   = 10
	maxRetryCodes      = 100
	maxCodeLength      = 100
)

// checkRetry refuses a policy that makes no sense. A zero field is not said.
func checkRetry(p run.RetryPolicy) error {
	for _, number := range []struct {
		field string
		value float64
		limit float64
	}{
		{"max_attempts", float64(p.MaxAttempts), maxRetryAttempts},
		{"initial_delay", p.InitialDelay.Seconds(), maxInitialDelay.Seconds()},
		{"max_delay", p.MaxDelay.Seconds(), maxRetryDelay.Seconds()},
		{"multiplier", p.Multiplier, maxRetryMultiplier},
		{"jitter", p.Jitter, 1},
		{"timeout_growth", p.TimeoutGrowth, maxTimeoutGrowth},
	} {
		if !(number.value >= 0 && number.value <= number.limit) { // NaN too
			return fault.New(fault.InvalidArgument, fmt.Sprintf("is %g", number.value), fault.Field("retry."+number.field),
				fault.Remedy(fmt.Sprintf("use 0 (as the pipeline says) to %g", number.limit)))
		}
	}
	for field, codes := range map[string][]string{"retry.retry_on": p.RetryOn, "retry.no_retry_on": p.NoRetryOn} {
		if len(codes) > maxRetryCodes {
			return fault.New(fault.LimitExceeded, fmt.Sprintf("has %d codes, the limit is %d", len(codes), maxRetryCodes),
				fault.Field(field), fault.Remedy("list fewer codes"))
		}
		for _, code := range codes {
			if err := checkText(field, code, maxCodeLength); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckIdempotencyKey refuses what is no idempotency key.
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
