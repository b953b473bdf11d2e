package rest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// plainMask reports whether a text is a list of field names separated by commas.
func plainMask(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."
	for path := range strings.SplitSeq(text, ",") {
		if strings.Trim(path, letters) != "" || slices.Contains(strings.Split(path, "."), "") {
			return text == ""
		}
	}
	return true
}

// camelMask writes the field masks of a document in camel case, the only form that protojson
// reads. All other names of this API are written as in the contract, so that people write those of
// a mask in the same way.
func camelMask(m protoreflect.MessageDescriptor, data []byte) []byte {
	var masks []protoreflect.FieldDescriptor
	for i := range m.Fields().Len() {
		if field := m.Fields().Get(i); field.Message() != nil && field.Message().FullName() == fieldMaskName {
			masks = append(masks, field)
		}
	}
	if len(masks) == 0 {
		return data
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return data // protojson reports the error
	}
	var out []byte
	copied := 0
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return data
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return data
		}
		var text string
		isMask := slices.ContainsFunc(masks, func(f protoreflect.FieldDescriptor) bool { return name == f.TextName() || name == f.JSONName() })
		if !isMask || json.Unmarshal(value, &text) != nil || !plainMask(text) {
			continue
		}
		end := int(decoder.InputOffset())
		out = append(out, data[copied:end-len(value)]...)
		out = append(out, '"')
		out = append(out, camelCase(text)...)
		out = append(out, '"')
		copied = end
	}
	return append(out, data[copied:]...)
}

// camelCase is max_delay as maxDelay.
func camelCase(text string) string {
	var out strings.Builder
	upper := false
	for _, r := range text {
		switch {
		case r == '_':
			upper = true
			continue
		case upper && r >= 'a' && r <= 'z':
			r -= 'a' - 'A'
		}
		upper = false
		out.WriteRune(r)
	}
	return out.String()
}
