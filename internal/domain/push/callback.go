package push

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// CallbackPath is the prefix of the paths of callbacks. The part of a URL before it leads to the
// server and is not signed: a proxy may remove it.
const CallbackPath = "/v1/callbacks/"

// CallbackMethod is the method of every callback.
const CallbackMethod = http.MethodPost

// CallbackLifetime is how long the URLs of an envelope are valid; heartbeats return new ones.
const CallbackLifetime = 2 * time.Hour

// Action is the purpose of a callback.
type Action string

// The actions.
const (
	ActionStatus    Action = "status"
	ActionReport    Action = "report"
	ActionHeartbeat Action = "heartbeat"
	ActionCursor    Action = "cursor"
	ActionFanOut    Action = "fan_out"
	ActionUpstream  Action = "upstream"
)

// Actions returns all actions.
func Actions() []Action {
	return []Action{ActionStatus, ActionReport, ActionHeartbeat, ActionCursor, ActionFanOut, ActionUpstream}
}

// Callback is the right that a presigned URL grants: one action on one attempt, under its lease.
type Callback struct {
	Tenant  id.Tenant
	Run     id.Run
	Task    id.Task
	Attempt int32
	Action  Action
	Token   int64 // the fencing token of the lease
}

// Presented is a verified callback, with the key and expiry of its URL.
type Presented struct {
	Callback

	KeyID     string
	ExpiresAt time.Time
}

// path returns the path of the URL.
func (c Callback) path() string {
	return CallbackPath + c.Tenant.String() + "/" + c.Run.String() + "/" + c.Task.String() + "/" + strconv.Itoa(int(c.Attempt)) + "/" + string(c.Action)
}

// query returns the query of the URL, in its only order.
func (c Callback) query(keyID, signature string, expires time.Time) string {
	return "expires=" + strconv.FormatInt(expires.Unix(), 10) + "&key=" + url.QueryEscape(keyID) +
		"&token=" + strconv.FormatInt(c.Token, 10) + "&sig=" + signature
}

// message returns the signed bytes: a JSON list, so that no envelope has the same bytes.
func (c Callback) message(method, keyID string, expires time.Time) ([]byte, error) {
	return canon.Marshal([]string{
		"servo.callback.v1", method, c.path(), c.Tenant.String(), c.Run.String(), c.Task.String(), strconv.Itoa(int(c.Attempt)),
		string(c.Action), strconv.FormatInt(expires.Unix(), 10), keyID, strconv.FormatInt(c.Token, 10),
	})
}

// SignCallback returns the URL of one callback. Base is the address of the servers, such as
// https://servo.example.com; the URL is valid until it expires, to the second.
func SignCallback(base, method string, c Callback, key Key, expires time.Time) (string, error) {
	switch {
	case !slices.Contains(Actions(), c.Action):
		return "", fault.New(fault.InvalidArgument, fmt.Sprintf("%q is not an action", c.Action), fault.Field("action"))
	case c.Attempt < 1:
		return "", fault.New(fault.InvalidArgument, "must be 1 or more", fault.Field("attempt"))
	}
	message, err := c.message(method, key.ID, expires)
	if err != nil {
		return "", fmt.Errorf("sign a callback: %w", err)
	}
	return strings.TrimSuffix(base, "/") + c.path() + "?" + c.query(key.ID, signature(key.derive(infoCallback), message), expires), nil
}

// SignCallbacks returns the URLs of all callbacks of an attempt; the action of c is ignored.
func SignCallbacks(base string, c Callback, key Key, expires time.Time) (Callbacks, error) {
	expires = expires.UTC().Truncate(time.Second)
	out := Callbacks{ExpiresAt: expires}
	for action, to := range map[Action]*string{
		ActionStatus: &out.Status, ActionReport: &out.Report, ActionHeartbeat: &out.Heartbeat,
		ActionCursor: &out.Cursor, ActionFanOut: &out.FanOut, ActionUpstream: &out.Upstream,
	} {
		c.Action = action
		signed, err := SignCallback(base, CallbackMethod, c, key, expires)
		if err != nil {
			return Callbacks{}, err
		}
		*to = signed
	}
	return out, nil
}

// VerifyCallback verifies the URL of a request, or refuses it with ErrRefused. Each byte of path and
// query counts: a URL has one spelling, and nothing may be added to it.
func VerifyCallback(method string, u *url.URL, keys Keyring, now time.Time) (Presented, error) {
	p, sig, err := readCallback(u)
	if err != nil {
		return Presented{}, err
	}
	message, err := p.message(method, p.KeyID, p.ExpiresAt)
	if err != nil {
		return Presented{}, refuse("the URL is invalid: " + err.Error())
	}
	secret, known := keys.lookup(infoCallback)(p.KeyID, now)
	switch valid := matches(secret, known, message, sig); {
	case !known:
		return Presented{}, refuse("the key is unknown, expired or revoked")
	case !valid:
		return Presented{}, refuse("the signature does not match")
	case !now.Before(p.ExpiresAt):
		return Presented{}, refuse("the URL has expired")
	}
	return p, nil
}

// readCallback parses a URL, and refuses one that would be written differently.
func readCallback(u *url.URL) (Presented, string, error) {
	var p Presented
	rest, found := strings.CutPrefix(u.EscapedPath(), CallbackPath)
	parts := strings.Split(rest, "/")
	if !found || len(parts) != 5 {
		return p, "", refuse("the path is not the path of a callback")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return p, "", refuse("the query is invalid")
	}
	tenant, err1 := id.Parse[id.Tenant]("tenant", parts[0])
	run, err2 := id.Parse[id.Run]("run", parts[1])
	task, err3 := id.Parse[id.Task]("task", parts[2])
	if err1 != nil || err2 != nil || err3 != nil {
		return p, "", refuse("an id in the path is invalid")
	}
	attempt, err1 := strconv.ParseInt(parts[3], 10, 32)
	expires, err2 := strconv.ParseInt(query.Get("expires"), 10, 64)
	token, err3 := strconv.ParseInt(query.Get("token"), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return p, "", refuse("a number in the URL is invalid")
	}
	p = Presented{
		Callback: Callback{
			Tenant: tenant, Run: run, Task: task, Attempt: int32(attempt), Action: Action(parts[4]), Token: token,
		},
		KeyID: query.Get("key"), ExpiresAt: time.Unix(expires, 0).UTC(),
	}
	sig := query.Get("sig")
	if u.EscapedPath() != p.path() || u.RawQuery != p.query(p.KeyID, sig, p.ExpiresAt) || u.Fragment != "" {
		return p, "", refuse("the URL is not in canonical form")
	}
	return p, sig, nil
}

// Renew reports whether the worker that used a URL should receive new ones: half of their lifetime
// has passed, or the key expires before them.
func (r Keyring) Renew(p Presented, now time.Time) bool {
	if p.ExpiresAt.Sub(now) < CallbackLifetime/2 {
		return true
	}
	for _, k := range r {
		if k.ID == p.KeyID {
			return !k.ExpiresAt.IsZero() && k.ExpiresAt.Before(p.ExpiresAt)
		}
	}
	return true
}
