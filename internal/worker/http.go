package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/telemetry"
)

// The limits of a call.
const (
	maxAnswer    = 1 << 20
	maxExcerpt   = 4 << 10
	dialPatience = 30 * time.Second
)

// HTTP executes assets of kind http: it calls the asset's endpoint with the task as JSON, and returns
// the response as the result. It calls addresses that its guard allows and follows no redirects: the
// endpoint must be the one in the manifest.
type HTTP struct {
	client *http.Client
}

// NewHTTP returns an executor for a number of concurrent calls; a nil guard allows public addresses
// only. The timeout of a task limits its call.
func NewHTTP(concurrency int, guard *netguard.Guard) *HTTP {
	return &HTTP{client: netguard.New(netguard.Options{
		Guard: guard, DialTimeout: dialPatience, Timeout: netguard.NoTimeout, MaxBody: maxAnswer, MaxIdlePerHost: max(concurrency, 1),
	})}
}

// Close closes idle connections.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// Kind returns http.
func (*HTTP) Kind() string { return KindHTTP }

// Capabilities returns http.
func (*HTTP) Capabilities() []string { return []string{KindHTTP} }

// Execute makes one call.
func (h *HTTP) Execute(ctx context.Context, task *Task) (Result, error) {
	body, err := task.Input(ctx)
	if err != nil {
		return Result{}, err
	}
	code := task.Lease().GetCode().GetHttp()
	request, err := http.NewRequestWithContext(ctx, code.GetMethod(), code.GetUrl(), bytes.NewReader(body))
	if err != nil {
		return Result{}, &Error{Code: codeConfig, Message: "the endpoint cannot be called: " + err.Error(), Cause: err}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "servo-worker")
	for name, value := range code.GetHeaders() {
		if value, err = task.expandSecrets(ctx, value); err != nil {
			return Result{}, err
		}
		request.Header.Set(name, value)
		if http.CanonicalHeaderKey(name) == "Host" {
			request.Host = value
		}
	}
	request.Header.Set("Idempotency-Key", idempotencyKey(task.Lease()))
	telemetry.SetHeaders(request.Header, traceOf(ctx))
	response, err := h.client.Do(request)
	if err != nil {
		return Result{}, unreachable(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	tooLarge := errors.Is(err, netguard.ErrTooLarge)
	if err != nil && !tooLarge {
		return Result{}, unreachable(err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return Result{}, statusError(response, answer)
	}
	if tooLarge {
		return Result{}, &Error{Code: codeUser, Message: fmt.Sprintf("the endpoint's response has more than %d bytes", maxAnswer)}
	}
	return Result{JSON: answer}, nil
}

// unreachable returns the failure of a call without a response.
func unreachable(err error) error {
	if errors.Is(err, netguard.ErrRefused) {
		return &Error{
			Code: codeConfig, Message: "the endpoint's address is neither public nor in a network that this worker may call", Cause: err,
			SuggestedAction: "use a public address, or start the worker with --allow-private-networks",
		}
	}
	code := "NETWORK_ERROR"
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		code = codeTimeout
	}
	return &Error{Code: code, Message: "the endpoint did not respond: " + err.Error(), Cause: err}
}

// statusError returns the failure of a call with an error status.
func statusError(response *http.Response, answer []byte) error {
	status := response.StatusCode
	code := codeUser
	switch {
	case status == http.StatusRequestTimeout || status == http.StatusGatewayTimeout:
		code = codeTimeout
	case status == http.StatusTooManyRequests:
		code = "RATE_LIMITED"
	case status >= 500 && status != http.StatusNotImplemented:
		code = "SERVICE_UNAVAILABLE"
	case status == http.StatusUnauthorized:
		code = "AUTHENTICATION_FAILED"
	case status == http.StatusForbidden:
		code = "AUTHORIZATION_FAILED"
	case status == http.StatusNotFound:
		code = "RESOURCE_NOT_FOUND"
	}
	failure := &Error{
		Code: code, Message: fmt.Sprintf("the endpoint responded with %d %s", status, http.StatusText(status)),
		Details: map[string]any{"status": status, "answer": cut(storable(string(answer)), maxExcerpt)},
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		failure.RetryAfter = netguard.RetryAfter(response.Header, time.Now(), maxRetryAfter)
	}
	if status >= 300 && status < 400 {
		failure.Message += " to " + response.Header.Get("Location")
		failure.SuggestedAction = "use the new URL in the manifest: redirects are not followed"
	}
	return failure
}

// idempotencyKey returns the key of all calls of an attempt. The fencing token distinguishes attempts
// that have the same number before and after a restore of the database.
func idempotencyKey(lease *servov1.Lease) string {
	return fmt.Sprintf("%s:%d:%d", lease.GetTask(), lease.GetAttempt(), lease.GetFencingToken())
}
