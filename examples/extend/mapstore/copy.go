package mapstore

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/helixagents/helix/session"
)

// copied returns a copy of v that shares no memory with it, in the form in which a
// database would return it. It takes the place of encoding and decoding. A store that
// encodes rows as JSON has to keep embedded JSON (inputs, outputs, values of custom
// state) in columns of their own: package encoding/json removes the spaces from it,
// and the contract demands the same bytes.
func copied[T any](v T) T {
	out, _ := reflect.TypeAssert[T](deepCopy(reflect.ValueOf(&v).Elem()))
	return out
}

func deepCopy(v reflect.Value) reflect.Value {
	switch x := v.Interface().(type) {
	case time.Time:
		return reflect.ValueOf(utc(x))
	case session.CustomState:
		return reflect.ValueOf(copiedState(&x))
	case *session.Error:
		return reflect.ValueOf(copiedError(x))
	}
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(deepCopy(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(deepCopy(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for key, value := range v.Seq2() {
				out.SetMapIndex(key, deepCopy(value))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(deepCopy(v.Field(i)))
		}
	default:
		return v
	}
	return out
}

func copiedState(state *session.CustomState) session.CustomState {
	var out session.CustomState
	for key, value := range state.All() {
		out.Set(key, copied(value))
	}
	return out
}

// copiedError returns an error as a database would: the text of its cause becomes part
// of the message, and the Go value of the cause is lost.
func copiedError(e *session.Error) *session.Error {
	if e == nil {
		return nil
	}
	out := &session.Error{}
	raw, err := session.Encode(e)
	if err == nil {
		err = json.Unmarshal(raw, out)
	}
	if err != nil {
		return &session.Error{Code: e.Code, Message: e.Message}
	}
	return out
}

// utc is a time as a database returns it: in UTC and without a monotonic part.
func utc(t time.Time) time.Time { return t.Round(0).UTC() }
