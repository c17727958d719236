// net/http or retryablehttp sends a request to each of the URLs on standard
// input, all at once.
//
//     drive net/http|retryablehttp < cells.json
package main

import (
    "encoding/json"
    "fmt"
    "io"
    "net/http"
    "os"
    "strings"
    "sync"
    "time"

    "github.com/hashicorp/go-retryablehttp"
)

const retries = 5
const timeout = 10 * time.Second
const body = `{"amount":1999,"currency":"EUR","order":"A-17"}`

type cell struct {
    Fault, URL, Key string
    Kept            bool
}

type result struct {
    Fault  string `json:"fault"`
    Status int    `json:"status,omitempty"`
    Body   string `json:"body,omitempty"`
    Error  string `json:"error,omitempty"`
}

func warm(client *http.Client, c cell) {
    if !c.Kept {
        return
    }
    if resp, err := client.Get(c.URL); err == nil {
        io.Copy(io.Discard, resp.Body)
        resp.Body.Close()
    }
}

func read(c cell, resp *http.Response, err error) result {
    if err != nil {
        return result{Fault: c.Fault, Error: err.Error()}
    }
    defer resp.Body.Close()
    text, err := io.ReadAll(resp.Body)
    if err != nil {
        return result{Fault: c.Fault, Error: err.Error()}
    }
    return result{Fault: c.Fault, Status: resp.StatusCode, Body: string(text)}
}

func plain(c cell) result {
    client := &http.Client{Timeout: timeout, Transport: &http.Transport{}}
    warm(client, c)
    req, err := http.NewRequest("POST", c.URL+"/payments",
        strings.NewReader(body))
    if err != nil {
        return read(c, nil, err)
    }
    req.Header.Set("Idempotency-Key", c.Key)
    req.Header.Set("Content-Type", "application/json")
    resp, err := client.Do(req)
    return read(c, resp, err)
}

func retryable(c cell) result {
    client := retryablehttp.NewClient()
    client.HTTPClient.Timeout = timeout
    client.RetryMax = retries
    client.RetryWaitMin = 300 * time.Millisecond
    client.Logger = nil
    warm(client.HTTPClient, c)
    req, err := retryablehttp.NewRequest("POST", c.URL+"/payments",
        []byte(body))
    if err != nil {
        return read(c, nil, err)
    }
    req.Header.Set("Idempotency-Key", c.Key)
    req.Header.Set("Content-Type", "application/json")
    resp, err := client.Do(req)
    return read(c, resp, err)
}

func main() {
    var cells []cell
    var wait sync.WaitGroup
    var lock sync.Mutex

    fmt.Println("ready")
    if err := json.NewDecoder(os.Stdin).Decode(&cells); err != nil {
        panic(err)
    }
    send := plain
    if os.Args[1] == "retryablehttp" {
        send = retryable
    }
    for _, c := range cells {
        wait.Add(1)
        go func(c cell) {
            defer wait.Done()
            line, _ := json.Marshal(send(c))
            lock.Lock()
            fmt.Println(string(line))
            lock.Unlock()
        }(c)
    }
    wait.Wait()
}
