package api

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

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/store"
)

// Limits of what the audit keeps of a call.
const (
	maxAuditBytes = 4 << 10
	maxFieldBytes = 1 << 10
	maxSubject    = 500
	maxRequestID  = 128
	auditPatience = 10 * time.Second // for the row of a call whose caller may be gone
)

// audit writes a call down that has changed something or tried to, before it is answered. It
// cannot undo what was done: a row that cannot be written is logged with all that it has.
func (s *Server) audit(ctx context.Context, method string, req any, allowed bool, err error) {
	if m := s.methods[method]; !m.Audited() {
		return
	}
	message, ok := req.(proto.Message)
	if !ok {
		return
	}
	caller := callerOf(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), auditPatience)
	defer cancel()
	row := store.Audit{
		Tenant: s.auditedTenant(ctx, caller, tenantOf(req)), Actor: caller.Actor, Address: addressOf(ctx), RequestID: requestIDOf(ctx),
		Method: strings.TrimPrefix(method, "/servo.v1."), Subject: subjectOf(message), Allowed: allowed, Request: auditJSON(message),
	}
	if err != nil {
		_, doc := problem.Document(problem.Status(err))
		row.Code = doc.Code
	}
	if err := s.engine.Audit(ctx, row); err != nil {
		s.log.ErrorContext(ctx, "a call is missing in the audit", "error", err, "tenant", row.Tenant, "actor", row.Actor, "address", row.Address,
			"request_id", row.RequestID, "method", row.Method, "subject", row.Subject, "allowed", row.Allowed, "code", row.Code)
	}
}

// auditedTenant is where a call is written down: with the tenant that it names, if the caller
// may reach it, else with the caller's own.
func (s *Server) auditedTenant(ctx context.Context, caller access.Caller, name string) id.Tenant {
	switch {
	case !caller.Everywhere() && caller.Person: // who is granted something by the name of a tenant
		name = caller.TenantName
	case !caller.Everywhere() || name == "":
		return caller.Tenant
	}
	found, err := s.tenants.id(ctx, name)
	if err != nil {
		return id.Tenant{} // there is none, and the call has failed of it
	}
	return found
}

// requestIDOf is the id of a request, or a new one if the caller's is none that can stand in a
// log.
func requestIDOf(ctx context.Context) string {
	given := header(ctx, "x-request-id")
	if given == "" || len(given) > maxRequestID || strings.ContainsFunc(given, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return uuid.NewString()
	}
	return given
}

// subjects are the fields that say what a request is about.
var subjects = []protoreflect.Name{"config", "run", "task", "asset", "pipeline", "deployment", "channel", "key", "pool", "lock", "name", "owner"} //nolint:gochecknoglobals // a list that never changes

// subjectOf is what a request is about, in its own words.
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

// auditJSON is a request without its secrets, in at most maxAuditBytes.
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
	if err != nil { // text that is not UTF-8: the request was refused for it
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

// sizeOf is about how much a field holds.
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
	secretName = regexp.MustCompile(`(?i)secret|passw|token|credential|private|authorization|^(api_?)?key$`)
	secretText = regexp.MustCompile(`(sk_[0-9a-f]{16}|whsec)_[A-Za-z0-9_+/=-]+`)
)

// redact takes secrets out of JSON: what has the name of one, and what looks like one of ours.
func redact(name string, value any) any {
	if secretName.MatchString(name) {
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

// harmless is text that can be kept, without keys.
func harmless(text string) string {
	return secretText.ReplaceAllString(strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD"), "${1}_…")
}

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// auditService implements servo.v1.AuditService.
type auditService struct {
	servov1.UnimplementedAuditServiceServer
	*Server
}

// ListAudit implements servov1.AuditServiceServer.
func (s auditService) ListAudit(ctx context.Context, req *servov1.ListAuditRequest) (*servov1.ListAuditResponse, error) {
	p, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	filter := store.AuditFilter{Actor: req.GetActor()}
	if strings.ContainsRune(filter.Actor, 0) {
		return nil, fault.New(fault.InvalidArgument, "has a zero character", fault.Field("actor"), fault.Remedy("use the name of a key, such as key/ci"))
	}
	if filter.Since, err = timeOf("since", req.GetSince()); err != nil {
		return nil, err
	}
	before, err := idPosition[id.Event](p)
	if err != nil {
		return nil, err
	}
	if before != nil {
		filter.Before = before.UUID
	}
	if filter.Tenant, err = s.ownerOrAll(ctx, req.GetTenant()); err != nil {
		return nil, err
	}
	found, err := s.store.Audit(ctx, filter, p.size+1)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListAuditResponse{}
	found, answer.NextPageToken = cut(p, found, func(a store.Audit) int { return len(a.Request) }, func(a store.Audit) string { return a.ID.String() })
	for _, a := range found {
		request, err := structOf(a.Request)
		if err != nil {
			return nil, err
		}
		answer.Entries = append(answer.Entries, &servov1.AuditEntry{
			Id: a.ID.String(), At: timestamp(a.At), Actor: a.Actor, Address: a.Address, RequestId: a.RequestID, Method: a.Method, Subject: a.Subject,
			Allowed: a.Allowed, Code: a.Code, Request: request,
		})
	}
	return answer, nil
}
