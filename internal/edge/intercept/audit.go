package intercept

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/store"
)

// Limits of an audit entry.
const (
	maxAuditBytes = 4 << 10
	maxFieldBytes = 1 << 10
	maxSubject    = 500
	maxRequestID  = 128
	auditPatience = 10 * time.Second // for writing the entry, even if the caller has left
)

// audit records a call that has changed something or tried to, before it is answered. A failed
// write cannot undo the call: the entry is then logged with all its fields.
func (c *Chain) audit(ctx context.Context, method string, req any, allowed bool, err error) {
	if m := c.methods[method]; !m.Audited() {
		return
	}
	message, ok := req.(proto.Message)
	if !ok {
		return
	}
	caller := Caller(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	row := store.Audit{
		Tenant: c.auditedTenant(ctx, caller, tenantOf(req)), Actor: caller.Actor, Address: addressOf(ctx), RequestID: requestIDOf(ctx),
		Method: strings.TrimPrefix(method, "/servo.v1."), Subject: subjectOf(message), Allowed: allowed, Request: auditJSON(message),
	}
	if err != nil {
		_, doc := problem.Document(problem.Status(err))
		row.Code = doc.Code
	}
	if err := c.options.Engine.Audit(ctx, row); err != nil {
		c.log.ErrorContext(ctx, "cannot write an audit entry", "error", err, "tenant", row.Tenant, "actor", row.Actor, "address", row.Address,
			"request_id", row.RequestID, "method", row.Method, "subject", row.Subject, "allowed", row.Allowed, "code", row.Code)
	}
}

// auditedTenant returns the tenant whose audit log records a call: the tenant that the call names if
// the caller may access it, else the caller's own.
func (c *Chain) auditedTenant(ctx context.Context, caller access.Caller, name string) id.Tenant {
	switch {
	case !caller.Everywhere() && caller.Person: // a person has grants by the name of a tenant
		name = caller.TenantName
	case !caller.Everywhere() || name == "":
		return caller.Tenant
	}
	found, err := c.tenants.ID(ctx, name)
	if err != nil {
		return id.Tenant{} // the tenant does not exist, and the call has failed
	}
	return found
}

// requestIDOf returns the id of a request, or a new one if the caller sent none that can be logged.
func requestIDOf(ctx context.Context) string {
	given := header(ctx, "x-request-id")
	if given == "" || len(given) > maxRequestID || strings.ContainsFunc(given, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return uuid.NewString()
	}
	return given
}

// subjects are the fields that name the object of a request.
var subjects = []protoreflect.Name{"config", "run", "task", "asset", "pipeline", "deployment", "channel", "key", "pool", "lock", "name", "owner"} //nolint:gochecknoglobals // a constant

// subjectOf returns the objects that a request names.
func subjectOf(message proto.Message) string {
	m := message.ProtoReflect()
	var parts []string
	for _, name := range subjects {
		field := m.Descriptor().Fields().ByName(name)
		if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() || m.Get(field).String() == "" {
			continue
		}
		parts = append(parts, string(name)+"/"+m.Get(field).String())
	}
	return clip(harmless(strings.Join(parts, " ")), maxSubject)
}

// auditJSON returns a request without its secrets, in at most maxAuditBytes.
func auditJSON(message proto.Message) json.RawMessage {
	m := message.ProtoReflect()
	kept, left := m.New(), map[string]any{}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if size := sizeOf(field, value); size > maxFieldBytes {
			left[string(field.Name())] = fmt.Sprintf("[%d bytes]", size)
		} else {
			kept.Set(field, value)
		}
		return true
	})
	members := map[string]any{}
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(kept.Interface())
	if err == nil {
		err = json.Unmarshal(raw, &members)
	}
	if err != nil { // not UTF-8; the request was refused for it
		return json.RawMessage(`{}`)
	}
	maps.Copy(members, left)
	redacted, _ := redact("", members).(map[string]any)
	for {
		raw, err = json.Marshal(redacted)
		if err != nil {
			return json.RawMessage(`{}`)
		}
		if len(raw) <= maxAuditBytes {
			return raw
		}
		delete(redacted, largest(redacted))
	}
}

// sizeOf returns the approximate size of a field.
func sizeOf(field protoreflect.FieldDescriptor, value protoreflect.Value) int {
	one := func(v protoreflect.Value) int {
		switch held := v.Interface().(type) {
		case protoreflect.Message:
			return proto.Size(held.Interface())
		case string:
			return len(held)
		case []byte:
			return len(held)
		}
		return 8
	}
	size := 0
	switch {
	case field.IsList():
		for i := range value.List().Len() {
			size += one(value.List().Get(i))
		}
	case field.IsMap():
		value.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
			size += len(key.String()) + one(v)
			return true
		})
	default:
		size = one(value)
	}
	return size
}

// largest returns the largest member.
func largest(members map[string]any) string {
	name, most := "", -1
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if raw, err := json.Marshal(members[key]); err == nil && len(raw) > most {
			name, most = key, len(raw)
		}
	}
	return name
}

const redactedText = "[redacted]"

var (
	// SecretName matches names of fields with secrets.
	SecretName = regexp.MustCompile(`(?i)secret|passw|token|credential|private|authorization|^(api_?)?key$`)
	secretText = regexp.MustCompile(`(sk_[0-9a-f]{16}|whsec)_[A-Za-z0-9_+/=-]+`)
)

// redact removes secrets from JSON: members with the name of a secret, and texts that look like a
// secret of Servo.
func redact(name string, value any) any {
	if SecretName.MatchString(name) {
		return redactedText
	}
	switch v := value.(type) {
	case string:
		return harmless(v)
	case []any:
		for i := range v {
			v[i] = redact("", v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, held := range v {
			out[harmless(key)] = redact(key, held)
		}
		return out
	}
	return value
}

// harmless returns a text without secrets, and without characters that cannot be stored.
func harmless(text string) string {
	return secretText.ReplaceAllString(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"), "${1}_…")
}

// clip shortens a text.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
