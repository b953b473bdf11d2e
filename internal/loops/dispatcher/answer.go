package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// kind is how a call ended.
type kind int

const (
	accepted  kind = iota // the worker reports later
	done                  // the answer has the result of the task
	failed                // the endpoint did not accept the task
	abandoned             // the call was aborted: its result is unknown
)

// outcome is the result of a call.
type outcome struct {
	kind    kind
	worked  bool // the endpoint works, even if the task failed
	actions []engine.Action
	failure run.Failure   // of a failed one
	wait    time.Duration // that the endpoint requests
}

// The error codes of calls.
const (
	codeConfiguration = "INVALID_CONFIGURATION"
	codeNetwork       = "NETWORK_ERROR"
	codeRateLimited   = "RATE_LIMITED"
	codeUnavailable   = "SERVICE_UNAVAILABLE"
	codeAuthenticate  = "AUTHENTICATION_FAILED"
	codeAuthorize     = "AUTHORIZATION_FAILED"
	codeNotFound      = "RESOURCE_NOT_FOUND"
)

func failing(code, message string) outcome {
	f := run.Failure{Code: code, Message: message}
	return outcome{kind: failed, failure: f, actions: []engine.Action{engine.Fail{Failure: f}}}
}

// notMade is the outcome of a call that could not be made, which reveals nothing about the endpoint.
func notMade(err error) outcome {
	o := failing(codeConfiguration, "the task could not be sent: "+err.Error())
	o.kind = abandoned
	if errors.Is(err, context.Canceled) {
		o.actions = []engine.Action{engine.Fail{Failure: run.Failure{Code: run.CodeInterrupted, Message: "the server stopped before the task was sent"}}}
	}
	return o
}

// notAnswered is the outcome of a call without an answer. The worker may have received it: its reports about
// this attempt are refused from now on.
func notAnswered(f *flight, err error) outcome {
	switch cause := context.Cause(f.ctx); {
	case errors.Is(cause, errTaken):
		return outcome{kind: abandoned}
	case errors.Is(cause, errCancelled):
		return outcome{kind: abandoned, actions: []engine.Action{engine.Fail{Failure: run.Failure{Code: run.CodeCancelled, Message: cause.Error()}}}}
	case cause != nil:
		return outcome{kind: abandoned, actions: []engine.Action{engine.Fail{Failure: run.Failure{Code: run.CodeInterrupted, Message: "the server stopped while the task was sent"}}}}
	case errors.Is(err, netguard.ErrRefused):
		return failing(codeConfiguration, "the address of pool "+f.pool.Name+" is refused: it is neither public nor in a network of --allow-private-networks")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), isTimeout(err):
		return failing(run.CodeTimeout, fmt.Sprintf("no answer within %s", f.pool.Timeout()))
	}
	return failing(codeNetwork, "the call failed: "+short(err.Error()))
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && timeout.Timeout()
}

// reply is the JSON that an endpoint may answer with.
type reply struct {
	Instance string          `json:"instance"` // of the worker that has accepted the task
	Status   string          `json:"status"`
	Result   json.RawMessage `json:"result"`
	Error    *struct {
		Code            string          `json:"code"`
		Message         string          `json:"message"`
		Details         json.RawMessage `json:"details"`
		SuggestedAction string          `json:"suggested_action"`
	} `json:"error"`
	ShouldRetry *bool `json:"should_retry"`
}

// answered reads an answer.
func answered(f *flight, response *http.Response) outcome {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		if errors.Is(err, netguard.ErrTooLarge) {
			return failing(codeConfiguration, "the answer is larger than 1 MiB")
		}
		return notAnswered(f, err)
	}
	var answer reply
	readable := json.Unmarshal(body, &answer) == nil
	if f, inexact := fault.As(canon.CheckExact(body)); readable && inexact {
		return failing(codeConfiguration, "answered with JSON that cannot be kept: "+f.Error())
	}
	switch status := response.StatusCode; {
	case status == http.StatusAccepted:
		return outcome{kind: accepted, worked: true, actions: []engine.Action{engine.Start{Instance: answer.instance()}}}
	case status == http.StatusOK && readable:
		return ended(answer)
	case status == http.StatusOK:
		return failing(codeConfiguration, `answered 200 without the outcome of the task: send {"status": "SUCCESS", "result": …}, or 202 to report later`)
	default:
		return refusal(f, response, answer, readable)
	}
}

// instance is the worker's instance if it is valid; the worker names it again when it starts.
func (r reply) instance() string {
	if len(r.Instance) > run.MaxInstanceLength || strings.ContainsRune(r.Instance, 0) {
		return ""
	}
	return r.Instance
}

// ended is the outcome of a task that was executed during the call.
func ended(answer reply) outcome {
	o := outcome{kind: done, worked: true, actions: []engine.Action{engine.Start{}}}
	switch outcome := run.Outcome(strings.ToUpper(answer.Status)); {
	case answer.Error != nil:
		o.actions = append(o.actions, answer.fail("", ""))
	case outcome == run.Success || outcome == run.PartialSuccess:
		o.actions = append(o.actions, engine.Complete{Status: outcome, Result: answer.Result})
	default:
		return failing(codeConfiguration, fmt.Sprintf("answered with the status %.100q: use SUCCESS or PARTIAL_SUCCESS, or an error", answer.Status))
	}
	return o
}

// fail is the failure that an answer reports or implies.
func (r reply) fail(code, message string) engine.Fail {
	f := run.Failure{Code: code, Message: message}
	if r.Error != nil && r.Error.Code != "" {
		f = run.Failure{Code: r.Error.Code, Message: r.Error.Message, Details: r.Error.Details, SuggestedAction: r.Error.SuggestedAction}
	}
	if f.Code == "" {
		f = run.Failure{Code: codeConfiguration, Message: "answered with an error that has no code"}
	}
	return engine.Fail{Failure: f, Retry: r.ShouldRetry}
}

// refusal is the outcome of an answer with an error status. An answer with an error code concerns the task,
// and so do most 4xx statuses; the others concern the endpoint.
func refusal(f *flight, response *http.Response, answer reply, readable bool) outcome {
	status := response.StatusCode
	code := codeConfiguration
	worked := false
	message := "answered " + response.Status
	switch {
	case status >= 300 && status < 400:
		message += ": redirects are not followed, set the pool's URL to where it leads"
	case status == http.StatusUnauthorized:
		code, message = codeAuthenticate, message+": does it know the signing key?"
	case status == http.StatusForbidden:
		code, message = codeAuthorize, message+": does it know the signing key?"
	case status == http.StatusNotFound, status == http.StatusGone:
		code, message = codeNotFound, message+" at "+f.pool.URL
	case status == http.StatusRequestTimeout:
		code = run.CodeTimeout
	case status == http.StatusTooManyRequests:
		code = codeRateLimited
	case status >= 500:
		code = codeUnavailable
	case status >= 400:
		worked = true
	}
	o := failing(code, message)
	o.worked = worked
	if readable && answer.Error != nil {
		fail := answer.fail(code, message)
		o.failure, o.actions = fail.Failure, []engine.Action{fail}
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		o.wait = netguard.RetryAfter(response.Header, time.Now(), maxWait)
	}
	return o
}

// short shortens text of an endpoint for a message.
func short(text string) string {
	const longest = 500
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
